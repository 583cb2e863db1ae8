// Package doctor looks for what keeps nodes from coming and going as pods: the traps of slurm.conf and of what stands around it.
//
// A Rule is a pure function of Facts. Who has read the facts, and from where, it does not know: a file alone is enough for most rules, and
// those that want to know more say nothing without it.
//
//	facts := doctor.Facts{Version: slurmconf.Version{Major: 26, Minor: 5}}
//	facts.SetSlurmConf(slurmconf.ReadConfig("/etc/slurm/slurm.conf", nil))
//	for _, finding := range doctor.Check(facts) {
//		fmt.Println(finding) // /etc/slurm/slurm.conf:9:1: error: ReturnToService=1; set ReturnToService=2 (return-to-service)
//	}
//
// Many findings can be mended by an edit of a line; Diff shows what all of them would change.
//
// Each rule names the man page or the source file of Slurm it rests on, and where the two versions that are looked at (24.11 and 26.05) differ
// goes by Facts.Version. docs/doctor.md is the table of the rules, and a test holds it to that.
package doctor
