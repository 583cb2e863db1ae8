package doctor

var textSamples = map[string]samplesOf{
	"refused": {
		bad: map[string]sample{
			"a key that Slurm does not know": {with: "ResumeTimout=5", byHand: true,
				want: []string{`slurm.conf:28:1: error: "ResumeTimout" is no key of slurm.conf in Slurm 26.05; is ResumeTimeout meant?`}},
			"a line that cannot be read": {with: "ResumeTimeout", byHand: true,
				want: []string{`slurm.conf:28:1: error: "ResumeTimeout" is no key=value; write key=value, or # before a comment`}},
			"in cgroup.conf": {cgroup: "CgroupPlugn=disabled\n", byHand: true,
				want: []string{`cgroup.conf:1:1: error: "CgroupPlugn" is no key of cgroup.conf in Slurm 26.05; is CgroupPlugin meant?`}},
			"of another version": {version: "24.11", with: "PowerAction=a Program=/a", byHand: true,
				want: []string{`slurm.conf:28:1: error: Slurm 24.11 does not know PowerAction yet; remove it, or use a Slurm that has it`}},
			"a PowerAction without its place": {with: "PowerAction=a Program=/a", byHand: true,
				want: []string{`slurm.conf:28:1: error: PowerAction "a" has no Location, and slurmctld does not start with it; add Location=slurmctld, or Location=slurmd`}},
		},
		good: map[string]sample{"clean": {}, "of this version": {with: "PowerAction=a Program=/a Location=slurmd"}},
	},
	"misread": {
		bad: map[string]sample{
			"a number with a leading zero": {with: "ResumeTimeout=0600", byHand: true, want: []string{`slurm.conf:27:15: warning: Slurm reads ResumeTimeout=0600 as 384; write 384`}},
			"a key twice": {with: "SuspendTime=300\nSuspendTime=400", byHand: true,
				want: []string{`slurm.conf:28:1: warning: SuspendTime stands at slurm.conf:27:1, too; Slurm takes the last and complains in all its programs; remove one`}},
		},
		good: map[string]sample{"clean": {}},
	},
	"unsupported-version": {
		bad: map[string]sample{
			"older": {version: "24.05", byHand: true, want: []string{"error: Slurm is 24.05; use Slurm 24.11 to 26.05, or give the right one with --slurm-version"}},
			"newer": {version: "26.11", byHand: true, want: []string{"error: Slurm is 26.11; use Slurm 24.11 to 26.05, or give the right one with --slurm-version"}},
		},
		good: map[string]sample{"the oldest": {version: "24.11"}, "between": {version: "25.05"}, "the newest": {version: "26.05"}},
	},
	"slurmtide-conf": {
		bad: map[string]sample{"a key that is not known": {conf: `slurmtide.conf line 1: unknown key "Spol"; the line is ignored`, byHand: true,
			want: []string{`warning: slurmtide.conf line 1: unknown key "Spol"; the line is ignored; correct the line, or remove it`}}},
		good: map[string]sample{"clean": {}},
	},
}

var programSamples = map[string]samplesOf{
	"power-saving-programs": {
		bad: map[string]sample{
			"none": {without: "ResumeProgram SuspendProgram ResumeFailProgram PrologSlurmctld", want: []string{
				"slurm.conf: error: there is no ResumeProgram; set ResumeProgram=/opt/slurmtide/resume",
				"slurm.conf: error: there is no SuspendProgram; set SuspendProgram=/opt/slurmtide/suspend"}},
			"empty": {with: `ResumeProgram=""`, want: []string{"slurm.conf:27:1: error: there is no ResumeProgram; set ResumeProgram=/opt/slurmtide/resume"}},
			"one, elsewhere": {without: "SuspendProgram", with: "ResumeProgram=/usr/lib/st/resume",
				want: []string{"slurm.conf: error: there is no SuspendProgram; set SuspendProgram=/usr/lib/st/suspend"}},
		},
		good: map[string]sample{"no cloud nodes": {without: "ResumeProgram NodeName PartitionName"}},
	},
	"resume-fail-program": {
		bad: map[string]sample{"none": {without: "ResumeFailProgram",
			want: []string{"slurm.conf: warning: there is no ResumeFailProgram; set ResumeFailProgram=/opt/slurmtide/resume-fail"}}},
		good: map[string]sample{"there": {}, "no cloud nodes": {without: "ResumeFailProgram NodeName PartitionName"}},
	},
	"start-gate": {
		bad: map[string]sample{
			"none":              {without: "PrologSlurmctld", host: host(nil), want: []string{"slurm.conf: hint: no PrologSlurmctld is a start gate; add PrologSlurmctld=/opt/slurmtide/start-gate"}},
			"nobody has looked": {without: "PrologSlurmctld", byHand: true, want: []string{"slurm.conf: hint: no PrologSlurmctld is a start gate; add PrologSlurmctld=/opt/slurmtide/start-gate"}},
			"it is not there":   {without: "PrologSlurmctld", host: host(map[string]FileFacts{"/opt/slurmtide/start-gate": {}}), byHand: true, want: []string{"slurm.conf: hint: no PrologSlurmctld is a start gate; add PrologSlurmctld=/opt/slurmtide/start-gate"}},
			"another one": {without: "PrologSlurmctld", with: "PrologSlurmctld=/site/prolog", host: host(nil),
				want: []string{"slurm.conf: hint: no PrologSlurmctld is a start gate; add PrologSlurmctld=/opt/slurmtide/start-gate"}},
		},
		good: map[string]sample{"beside another one": {with: "PrologSlurmctld=/site/prolog"}, "no cloud nodes": {without: "PrologSlurmctld NodeName PartitionName"}},
	},
	"gate-time": {
		bad: map[string]sample{
			"shorter": {with: "PrologEpilogTimeout=60", byHand: true,
				want: []string{"slurm.conf:28:1: hint: PrologEpilogTimeout=60 is shorter than ResumeTimeout of cpu-[0-9], 600; remove PrologEpilogTimeout or set it to 600 at least"}},
			"the other one stands there, too": {with: "PrologEpilogTimeout=600\nPrologTimeout=60", byHand: true,
				want: []string{"slurm.conf:29:1: hint: PrologTimeout=60 is shorter than ResumeTimeout of cpu-[0-9], 600; remove PrologTimeout or set it to 600 at least"}},
			"26.05's own": {with: "PrologTimeout=60", byHand: true,
				want: []string{"slurm.conf:28:1: hint: PrologTimeout=60 is shorter than ResumeTimeout of cpu-[0-9], 600; remove PrologTimeout or set it to 600 at least"}},
			"than a partition's": {with: "PrologEpilogTimeout=600\nNodeName=big-[0-1] State=CLOUD\nPartitionName=big Nodes=big-[0-1] ResumeTimeout=900", byHand: true,
				want: []string{"slurm.conf:28:1: hint: PrologEpilogTimeout=600 is shorter than ResumeTimeout of big-[0-1], 900; remove PrologEpilogTimeout or set it to 900 at least"}},
		},
		good: map[string]sample{"all partitions have shorter ones": {with: "PrologEpilogTimeout=300\nPartitionName=b Nodes=cpu-[0-9] ResumeTimeout=300"}, "of other nodes": {with: "PrologEpilogTimeout=600\nPartitionName=b Nodes=metal-0 ResumeTimeout=900"},
			"0": {with: "PrologEpilogTimeout=0"}, "no cloud nodes": {without: "NodeName PartitionName", with: "PrologEpilogTimeout=60"}, "longer": {with: "PrologEpilogTimeout=600"}, "no gate": {without: "PrologSlurmctld", with: "PrologEpilogTimeout=60"}},
	},
	"program-path": {
		bad: map[string]sample{
			"relative": {with: "ResumeProgram=resume", byHand: true,
				want: []string{`slurm.conf:27:1: error: ResumeProgram is "resume", which is no absolute path; set ResumeProgram to an absolute path, such as /opt/slurmtide/…`}},
			"of a PowerAction": {with: "ResumeProgram=Up\nPowerAction=up Program=bin/resume Location=slurmd", byHand: true,
				want: []string{`slurm.conf:28:1: error: ResumeProgram is "bin/resume", which is no absolute path; set ResumeProgram to an absolute path, such as /opt/slurmtide/…`}},
		},
		good: map[string]sample{"a PowerAction": {with: "ResumeProgram=up\nPowerAction=up Program=/opt/slurmtide/resume Location=slurmctld"}},
	},
	"programs-mixed-up": {
		bad: map[string]sample{"exchanged": {with: "ResumeProgram=/opt/slurmtide/suspend\nSuspendProgram=/opt/slurmtide/resume", byHand: true, want: []string{
			"slurm.conf:26:1: error: ResumeProgram is /opt/slurmtide/suspend, the program for SuspendProgram; set ResumeProgram=/opt/slurmtide/resume",
			"slurm.conf:27:1: error: SuspendProgram is /opt/slurmtide/resume, the program for ResumeProgram; set SuspendProgram=/opt/slurmtide/suspend"}}},
		good: map[string]sample{"a script": {with: "ResumeProgram=/site/power-up"}},
	},
	"resume-on-slurmd": {
		bad: map[string]sample{"Location=slurmd": {with: "ResumeProgram=up\nPowerAction=up Program=/opt/slurmtide/resume Location=slurmd",
			want: []string{"slurm.conf:28:46: error: ResumeProgram is the PowerAction up, which runs on slurmd; set Location=slurmctld on the PowerAction line"}},
			"a program that slurmctld refuses": {with: "ResumeProgram=up\nPowerAction=up Program=bin/resume Location=slurmd", byHand: true,
				want: []string{"slurm.conf:28:35: error: ResumeProgram is the PowerAction up, which runs on slurmd; set Location=slurmctld on the PowerAction line"}}},
		good: map[string]sample{"Location=slurmctld": {with: "ResumeProgram=up\nPowerAction=up Program=/opt/slurmtide/resume Location=slurmctld"}},
	},
}

// host is one where all is well but for the files given.
func host(files map[string]FileFacts) *HostFacts {
	h := &HostFacts{SlurmUser: 64030, Spool: "/spool", Keys: []string{"/key"}, Files: map[string]FileFacts{
		"/spool":                     {Exists: true, Directory: true, Mode: 0o700, Owner: 64030},
		"/key":                       {Exists: true, Mode: 0o600, Owner: 64030},
		"/opt/slurmtide/resume":      {Exists: true, Mode: 0o755},
		"/opt/slurmtide/suspend":     {Exists: true, Mode: 0o755},
		"/opt/slurmtide/resume-fail": {Exists: true, Mode: 0o755},
		"/opt/slurmtide/start-gate":  {Exists: true, Mode: 0o755},
	}}
	for name, file := range files {
		h.Files[name] = file
	}
	return h
}

func program(file FileFacts) *HostFacts {
	return host(map[string]FileFacts{"/opt/slurmtide/resume": file})
}
func nameless(node string) *HostFacts {
	h := host(nil)
	h.Nameless = []string{node}
	return h
}
func spoolIs(file FileFacts) *HostFacts { return host(map[string]FileFacts{"/spool": file}) }
func keyIs(file FileFacts) *HostFacts   { return host(map[string]FileFacts{"/key": file}) }

var hostSamples = map[string]samplesOf{
	"program-file": {
		bad: map[string]sample{
			"not there":           {host: program(FileFacts{}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume is not there; install it, or correct the path"}},
			"a directory":         {host: program(FileFacts{Exists: true, Directory: true, Mode: 0o755}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume is a directory; name the program in it"}},
			"group writes":        {host: program(FileFacts{Exists: true, Mode: 0o775}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume has mode 0775: group or others may write it; chmod 0755 /opt/slurmtide/resume"}},
			"others write":        {host: program(FileFacts{Exists: true, Mode: 0o757}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume has mode 0757: group or others may write it; chmod 0755 /opt/slurmtide/resume"}},
			"root alone executes": {host: program(FileFacts{Exists: true, Mode: 0o700}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume has mode 0700: SlurmUser cannot execute it; chmod 0755 /opt/slurmtide/resume"}},
			"nobody reads":        {host: program(FileFacts{Exists: true, Mode: 0o711}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume has mode 0711: SlurmUser cannot read it; chmod 0755 /opt/slurmtide/resume"}},
			"its owner does not":  {host: program(FileFacts{Exists: true, Mode: 0o655, Owner: 64030}), byHand: true, want: []string{"slurm.conf:9:1: error: ResumeProgram /opt/slurmtide/resume has mode 0655: SlurmUser cannot execute it; chmod 0755 /opt/slurmtide/resume"}},
		},
		good: map[string]sample{"all": {host: host(nil)}, "SlurmUser's own": {host: program(FileFacts{Exists: true, Mode: 0o700, Owner: 64030})}, "not looked at": {},
			"group writes the gate": {host: host(map[string]FileFacts{"/opt/slurmtide/start-gate": {Exists: true, Mode: 0o775}})}},
	},
	"program-owner": {
		bad:  map[string]sample{"somebody's": {host: program(FileFacts{Exists: true, Mode: 0o755, Owner: 1000}), byHand: true, want: []string{"slurm.conf:9:1: warning: ResumeProgram /opt/slurmtide/resume belongs to uid 1000, neither root nor SlurmUser; chown root /opt/slurmtide/resume"}}},
		good: map[string]sample{"root's": {host: host(nil)}, "SlurmUser's": {host: program(FileFacts{Exists: true, Mode: 0o755, Owner: 64030})}},
	},
	"spool": {
		bad: map[string]sample{
			"not there":       {host: spoolIs(FileFacts{}), byHand: true, want: []string{"/spool: error: there is no spool directory; install -d -o 64030 -m 0700 /spool, or name the right one with Spool= in slurmtide.conf"}},
			"a file":          {host: spoolIs(FileFacts{Exists: true, Mode: 0o700, Owner: 64030}), byHand: true, want: []string{"/spool: error: the spool is no directory; name a directory with Spool= in slurmtide.conf"}},
			"root's":          {host: spoolIs(FileFacts{Exists: true, Directory: true, Mode: 0o700}), byHand: true, want: []string{"/spool: error: the spool belongs to uid 0, not to SlurmUser (64030); install -d -o 64030 -m 0700 /spool"}},
			"others write it": {host: spoolIs(FileFacts{Exists: true, Directory: true, Mode: 0o777, Owner: 64030}), byHand: true, want: []string{"/spool: error: the spool has mode 0777: group or others may write to it; chmod 0700 /spool"}},
		},
		good: map[string]sample{"SlurmUser's": {host: host(nil)}, "not looked at": {}},
	},
	"key-file": {
		bad: map[string]sample{
			"not there":      {host: keyIs(FileFacts{}), byHand: true, want: []string{"/key: error: there is no such key; make it (docs/install.md), or correct the path"}},
			"others read it": {host: keyIs(FileFacts{Exists: true, Mode: 0o644}), byHand: true, want: []string{"/key: error: the key has mode 0644: others may use it; chmod 0600 /key"}},
		},
		good: map[string]sample{"its owner's": {host: host(nil)}, "a group's": {host: keyIs(FileFacts{Exists: true, Mode: 0o640})}},
	},
	"node-name": {
		bad: map[string]sample{"of a node that is off": {host: nameless("cpu-0"), byHand: true,
			want: []string{"slurm.conf:25:1: hint: cpu-0 has no address; give cpu-[0-9] an address on this host where no slurmd answers, its own for instance"}}},
		good: map[string]sample{"all have one": {host: host(nil)}, "of a node of metal": {host: nameless("metal-0")}, "not looked at": {}},
	},
}
