package inplace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// dialFor is how long slurmdbd may take to accept a connection.
const dialFor = 5 * time.Second

// clusterNameFile of slurmctld's state has the cluster's name, and behind a | the number that it has in the database.
const clusterNameFile = "clustername"

// dial sees whether somebody listens there.
func dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// slurmdbdOf is the slurmdbd that a slurm.conf names, as host:port; "" if it names none.
func slurmdbdOf(files map[string]string) string {
	config, _ := slurmconf.ReadConfig("slurm.conf", func(name string) ([]byte, error) { return []byte(files[filepath.Base(name)]), nil }) // what is wrong slurmctld says
	if config == nil {
		return ""
	}
	if s, ok := config.Get("AccountingStorageType"); !ok || !strings.HasSuffix(strings.ToLower(s.Value), "slurmdbd") {
		return ""
	}
	host, _ := config.Get("AccountingStorageHost")
	port, _ := config.Get("AccountingStoragePort")
	return net.JoinHostPort(cmp.Or(host.Value, "localhost"), cmp.Or(port.Value, "6819"))
}

// unreachable says why a configuration has to wait: it names a slurmdbd that slurmctld was not told of before, and that does not answer. Without the state that
// it has of one, slurmctld would wait for it, and serve nobody meanwhile (controller.c, _retry_init_db_conn). One that has never run is left to that.
func (a *Agent) unreachable(ctx context.Context, files map[string]string) (*Rejected, error) {
	where := slurmdbdOf(files)
	if where == "" {
		return nil, nil
	}
	kept, err := readFiles(a.Kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the configuration that was in force: %w", err)
	}
	if len(kept) == 0 || slurmdbdOf(kept) == where {
		return nil, nil
	}
	if err := a.Dial(ctx, where); err != nil {
		return &Rejected{fmt.Sprintf("slurmdbd at %s does not answer, and slurmctld would wait for it without serving anybody: %v", where, err)}, nil
	}
	return nil, nil
}

// forgetNumber has slurmctld take the number that another slurmdbd has for the cluster, or gives it, before files that name it are put in place. It would end
// when that differs from the one in its state (controller.c, _init_db_conn), and until Slurm 26.05 one that has run without a slurmdbd has chosen its own.
func (a *Agent) forgetNumber(files map[string]string) error {
	where := slurmdbdOf(files)
	if where == "" {
		return nil
	}
	other := false
	for _, dir := range []string{a.Kept, a.Etc} {
		have, err := readFiles(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		other = other || have["slurm.conf"] != "" && slurmdbdOf(have) != where
	}
	if !other {
		return nil
	}
	path := filepath.Join(a.State, clusterNameFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name, _, numbered := strings.Cut(string(text), "|")
	if !numbered {
		return nil
	}
	a.Log.Info("slurmctld gets the cluster's number from another slurmdbd", "slurmdbd", where)
	return writeFile(path, name, 0o644)
}

// withoutRecords takes out what a slurmctld without slurmdbd does not take: QOS and TRES that only the database knows.
func withoutRecords(f *slurmconf.File) {
	f.Remove("AccountingStorageTRES")
	f.Remove("PriorityWeightTRES")
	for _, s := range f.Settings() {
		if strings.EqualFold(s.Key, "PartitionName") {
			for _, field := range []string{"QOS", "AllowQOS", "DenyQOS", "TRESBillingWeights"} {
				f.RemoveField(s.Key, s.Value, field)
			}
		}
		if strings.EqualFold(s.Key, "NodeName") {
			f.RemoveField(s.Key, s.Value, "TRESWeights")
		}
	}
}
