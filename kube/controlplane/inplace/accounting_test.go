package inplace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	withOne     = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=one\n"
	withAnother = "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=another\nAccountingStoragePort=7000\n"
)

func TestSlurmdbdOf(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"none":        {map[string]string{"slurm.conf": "AccountingStorageType=accounting_storage/none\nAccountingStorageHost=one\n"}, ""},
		"nothing":     {nil, ""},
		"one":         {conf(withOne), "one:6819"},
		"with a port": {conf(withAnother), "another:7000"},
		"here":        {conf("accountingstoragetype=SlurmDBD\n"), "localhost:6819"},
		"included":    {map[string]string{"slurm.conf": "Include /tmp/x/more.conf\n", "more.conf": withOne}, "one:6819"},
		"of no form":  {conf("nonsense\n" + withOne), "one:6819"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, slurmdbdOf(test.files)) })
	}
}

// network says who listens.
type network struct {
	sync.Mutex
	listen map[string]bool
	asked  []string
}

func (n *network) dial(_ context.Context, address string) error {
	n.Lock()
	defer n.Unlock()
	n.asked = append(n.asked, address)
	if n.listen[address] {
		return nil
	}
	return errors.New("connection refused")
}

func (n *network) up(address string, up bool) {
	n.Lock()
	defer n.Unlock()
	n.listen[address] = up
}

func (w *world) number() string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.State, clusterNameFile))
	require.NoError(w.t, err)
	return string(text)
}

// A slurmctld that runs without slurmdbd, or with another, is told of one when that answers.
func TestSlurmdbdAnswersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(t), &network{listen: map[string]bool{}}
		w.Dial, w.State = n.dial, t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(w.State, clusterNameFile), []byte("tide|77"), 0o600))
		w.want("a\n")
		defer w.start()()
		time.Sleep(5 * time.Second)
		assert.Equal(t, Hash(conf("a\n")), w.last().InForce)

		w.want(withOne)
		time.Sleep(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("a\n")), Rejected: Hash(conf(withOne)),
			Error: "slurmdbd at one:6819 does not answer, and slurmctld would wait for it without serving anybody: connection refused"}, w.last())
		assert.Equal(t, "tide|77", w.number())

		n.up("one:6819", true)
		time.Sleep(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf(withOne))}, w.last(), "it is tried again soon")
		assert.Equal(t, "tide", w.number(), "slurmctld takes the number that slurmdbd gives")

		// From now on it may be away: slurmctld knows what it needs.
		require.NoError(t, os.WriteFile(filepath.Join(w.State, clusterNameFile), []byte("tide|5"), 0o600))
		n.up("one:6819", false)
		w.want(withOne + "# more\n")
		time.Sleep(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf(withOne + "# more\n"))}, w.last())
		assert.Equal(t, "tide|5", w.number())

		w.want(withAnother)
		time.Sleep(10 * time.Second)
		assert.Equal(t, Hash(conf(withAnother)), w.last().Rejected)
		w.want("a\n")
		time.Sleep(10 * time.Second)
		assert.Equal(t, Report{InForce: Hash(conf("a\n"))}, w.last(), "to have none takes nobody")
		assert.Equal(t, "tide|5", w.number())
	})
}

// A new pod does the same, and the very first waits for none: slurmctld does that.
func TestSlurmdbdAnswersFirstAtStart(t *testing.T) {
	w, n := newWorld(t), &network{listen: map[string]bool{}}
	w.Dial, w.State = n.dial, t.TempDir()
	w.want(withOne)
	require.NoError(t, w.Init(t.Context()))
	assert.Empty(t, n.asked)
	require.NoError(t, os.WriteFile(filepath.Join(w.State, clusterNameFile), []byte("tide|5"), 0o600))
	require.NoError(t, writeFiles(w.Kept, conf(withOne), 0o644, nil))

	w.want(withAnother)
	require.NoError(t, os.RemoveAll(w.Etc))
	require.NoError(t, w.Init(t.Context()))
	etc, err := w.readEtc()
	require.NoError(t, err)
	assert.Equal(t, conf(withOne), etc)
	assert.Equal(t, "tide|5", w.number())

	n.up("another:7000", true)
	require.NoError(t, os.RemoveAll(w.Etc))
	require.NoError(t, w.Init(t.Context()))
	etc, err = w.readEtc()
	require.NoError(t, err)
	assert.Equal(t, conf(withAnother), etc)
	assert.Equal(t, "tide", w.number())
	require.NoError(t, os.WriteFile(filepath.Join(w.State, clusterNameFile), []byte("tide|6"), 0o600))

	// Back to what was in force, after all, it is another one again.
	require.NoError(t, w.put(conf(withOne)))
	assert.Equal(t, "tide", w.number())
}

// The trial knows no database, so nothing may be in it that only a database knows.
func TestTrialWithoutRecords(t *testing.T) {
	files := map[string]string{
		"slurm.conf": withOne + "AccountingStorageTRES=gres/gpu\nPriorityWeightTRES=CPU=1,GRES/gpu=2\nInclude more.conf\nPartitionName=a Nodes=ALL QOS=part allowqos=x State=UP TRESBillingWeights=\"CPU=1,GRES/gpu=4\"\nNodeName=n CPUs=2 TRESWeights=GRES/gpu=4 State=CLOUD\n",
		"more.conf":  "PartitionName=b Nodes=ALL DenyQos=y\n",
	}
	require.NoError(t, alone(files, "/d", "", 1234))
	assert.NotContains(t, files["slurm.conf"], "TRES")
	assert.Contains(t, files["slurm.conf"], "\nPartitionName=a Nodes=ALL State=UP\n")
	assert.Contains(t, files["slurm.conf"], "\nNodeName=n CPUs=2 State=CLOUD\n")
	assert.Equal(t, "PartitionName=b Nodes=ALL\n", files["more.conf"])
	files = map[string]string{"slurm.conf": "PartitionName=a Nodes=ALL QOS=part\n"}
	require.NoError(t, alone(files, "/d", "", 1234))
	assert.Contains(t, files["slurm.conf"], "PartitionName=a Nodes=ALL QOS=part\n", "without slurmdbd there is no QOS, and slurmctld says so")
}

func TestDial(t *testing.T) {
	require.Error(t, dial(t.Context(), "127.0.0.1:1"))
}
