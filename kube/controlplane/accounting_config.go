package controlplane

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// slurmdbdConf is what every slurmdbd.conf begins with.
//
//go:embed slurmdbd.conf
var slurmdbdConf []byte

// Names of the files beside slurmdbd.conf.
const (
	slurmdbdConfFile = "slurmdbd.conf"
	caFile           = "database-ca.pem"
	certificateFile  = "database-client.pem"
	privateKeyFile   = "database-client.key"
)

// dbdLists are keys of slurmdbd.conf whose words are merged with those of extraConf.
var dbdLists = []string{"AuthInfo", "AuthAltParameters", "StorageParameters"}

// dbdReserved are keys that an Accounting's extraConf may not have, and what decides on them.
var dbdReserved = map[string]string{
	"dbdhost":           "the Accounting's name decides",
	"dbdaddr":           "the Accounting's name decides",
	"dbdbackuphost":     "there is one slurmdbd, which Kubernetes starts again",
	"dbdport":           "the Service and the probe know the port",
	"slurmuser":         "slurmdbd runs as the user that owns its files",
	"pidfile":           "slurmdbd's user may write nowhere else",
	"logfile":           "what slurmdbd says of the database is read from its stderr",
	"authtype":          "the keys are those of auth/slurm",
	"authalttypes":      "slurmrestd needs auth/jwt",
	"storagetype":       "it is accounting_storage/mysql",
	"storagehost":       "it is spec.storageConfig.host",
	"storageport":       "it is spec.storageConfig.port",
	"storageloc":        "it is spec.storageConfig.database",
	"storageuser":       "it is spec.storageConfig.username",
	"storagepass":       "it comes from spec.storageConfig.passwordKeyRef",
	"storagepassscript": "it comes from spec.storageConfig.passwordKeyRef",
}

// noArchive says why keys that begin with Archive are refused.
const noArchive = "archives would lie in the pod, and go with it"

// accountingReserved are keys of slurm.conf that a Controller with an accountingRef may not have.
var accountingReserved = []string{"AccountingStorageType", "AccountingStorageHost", "AccountingStoragePort", "AccountingStorageBackupHost", "AccountingStorageExternalHost"}

// DbdConfig makes slurmdbd.conf. An error says what is wrong in the Accounting, or its password.
func DbdConfig(a *v1alpha1.Accounting, password string) (string, error) {
	f, err := slurmconf.ParseFile(slurmdbdConfFile, slurmdbdConf)
	if err != nil {
		return "", fmt.Errorf("reading our own slurmdbd.conf: %w", err)
	}
	s := cmp.Or(a.Spec.StorageConfig, &v1alpha1.StorageConfig{})
	if err := errors.Join(
		f.Insert("DbdPort", "DbdHost="+dbdPodName(a.Name)),
		f.Set("StorageHost", s.Host), f.Set("StoragePort", strconv.Itoa(int(cmp.Or(s.Port, 3306)))),
		f.Set("StorageLoc", cmp.Or(s.Database, "slurm_acct_db")), f.Set("StorageUser", cmp.Or(s.Username, "slurm")),
	); err != nil {
		return "", err
	}
	if err := f.Set("StoragePass", password); err != nil { // which says the value
		return "", errors.New("spec.storageConfig.passwordKeyRef: slurmdbd.conf has no way to write this password: take one without blanks and quotes")
	}
	if t := s.TLS; t != nil {
		words := []string{"SSL_CA=" + etcDir + "/" + caFile}
		if t.Certificate != nil && t.PrivateKey != nil {
			words = append(words, "SSL_CERT="+etcDir+"/"+certificateFile, "SSL_KEY="+etcDir+"/"+privateKeyFile)
		}
		if err := f.AddWords("StorageParameters", words...); err != nil {
			return "", err
		}
	}
	if a.Spec.JWKSKeyRef != nil {
		if err := addJWKS(f); err != nil {
			return "", err
		}
	}
	if err := addDbdExtra(f, a.Spec.ExtraConf); err != nil {
		return "", err
	}
	return f.String(), nil
}

// addDbdExtra puts the user's lines behind ours.
func addDbdExtra(f *slurmconf.File, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	extra, err := slurmconf.ParseFile(extraConf, []byte(text))
	if err != nil {
		return err
	}
	for _, s := range extra.Settings() {
		key := strings.ToLower(s.Key)
		why, ok := dbdReserved[key]
		if strings.HasPrefix(key, "archive") {
			why, ok = noArchive, true
		}
		if ok {
			return slurmconf.Problem{Position: s.Position, Text: s.Key + " cannot be set here: " + why, Remedy: "remove it"}
		}
	}
	for _, s := range extra.Includes() {
		return slurmconf.Problem{Position: s.Position, Text: "there are no files to include", Remedy: "write the lines here"}
	}
	if err := refusedByAll(text); err != nil {
		return err
	}
	if err := f.Add("\n# --- " + extraConf + " ---"); err != nil {
		return err
	}
	if err := f.Merge(extra, dbdLists...); err != nil {
		return fmt.Errorf("%s: %w", extraConf, err)
	}
	return nil
}

// refusedByAll tells of lines that every Slurm refuses, since slurmdbd has no way to try its configuration. What only some refuse slurmdbd has to say
// itself: its version is not known here.
func refusedByAll(text string) error {
	config, err := slurmconf.ReadConfig(extraConf, func(string) ([]byte, error) { return []byte(text), nil })
	if err != nil {
		return err
	}
	older := map[slurmconf.Position]bool{}
	for _, p := range refused(config, slurmconf.Version{Major: 24, Minor: 11}) {
		older[p.Position] = true
	}
	for _, p := range refused(config, slurmconf.Version{Major: 26, Minor: 5}) {
		if older[p.Position] {
			return p
		}
	}
	return nil
}

func refused(config *slurmconf.Config, v slurmconf.Version) slurmconf.Problems {
	return slices.DeleteFunc(config.Check(slurmconf.SlurmdbdConf, v), func(p slurmconf.Problem) bool { return p.Warning })
}

// dbdAddress is where slurmdbd is.
func dbdAddress(a *v1alpha1.Accounting, s Settings) (host string, port int32) {
	if e := a.Spec.External; e != nil {
		return e.Host, cmp.Or(e.Port, slurmdbdPort)
	}
	return fmt.Sprintf("%s.%s.svc.%s", dbdWorkload(a.Name), a.Namespace, s.ClusterDomain), slurmdbdPort
}

// addAccounting makes a slurm.conf name the slurmdbd of an Accounting.
func addAccounting(f *slurmconf.File, a *v1alpha1.Accounting, s Settings) error {
	if a == nil {
		return nil
	}
	host, port := dbdAddress(a, s)
	var err error
	if _, ok := f.Get("JobAcctGatherType"); ok { // in that of slurmctld, which nodes have, too
		// Steps that end before the first look at them have no MaxRSS; Slurm's own default is 30 s.
		err = errors.Join(f.Set("JobAcctGatherType", "jobacct_gather/linux"), f.Insert("JobAcctGatherType", "JobAcctGatherFrequency=10"))
	}
	return errors.Join(err,
		f.Set("AccountingStorageType", "accounting_storage/slurmdbd"),
		f.Insert("JobCompType", fmt.Sprintf("AccountingStorageHost=%s\nAccountingStoragePort=%d", host, port)),
	)
}

// accountingExtra refuses lines of a Controller's extraConf that an Accounting decides on.
func accountingExtra(extra *slurmconf.File, a *v1alpha1.Accounting) error {
	if a == nil {
		return nil
	}
	for _, key := range accountingReserved {
		if s, ok := extra.Get(key); ok {
			return slurmconf.Problem{Position: s.Position, Text: s.Key + " cannot be set here: it is spec.accountingRef", Remedy: "remove it"}
		}
	}
	return nil
}

// accountingIncluded does the same for the files that slurm.conf includes.
func accountingIncluded(files map[string]string, a *v1alpha1.Accounting) error {
	if a == nil {
		return nil
	}
	config, err := slurmconf.ReadConfig("slurm.conf", func(name string) ([]byte, error) { return []byte(files[name]), nil })
	if err != nil {
		return err
	}
	for _, key := range accountingReserved {
		for _, s := range config.All(key) {
			if s.Position.File != "slurm.conf" {
				return slurmconf.Problem{Position: s.Position, Text: s.Key + " cannot be set here: it is spec.accountingRef", Remedy: "remove it"}
			}
		}
	}
	return nil
}

// AccountingClientConfig is that of slurmrestds that also answer what slurmdbd knows. The bridge's has no part in it, so that nothing of power saving waits
// for a database.
func AccountingClientConfig(c *v1alpha1.Controller, a *v1alpha1.Accounting, s Settings) (map[string]string, error) {
	files, err := ClientConfig(c, s)
	if err != nil {
		return nil, err
	}
	f, err := slurmconf.ParseFile("slurm.conf", []byte(files["slurm.conf"]))
	if err != nil {
		return nil, err
	}
	if err := addAccounting(f, a, s); err != nil {
		return nil, err
	}
	files["slurm.conf"] = f.String()
	return files, nil
}
