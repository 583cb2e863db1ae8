package slurmconf

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readTexts reads files out of a map.
func readTexts(texts map[string]string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := texts[name]
		if !ok {
			return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
		}
		return []byte(text), nil
	}
}

func TestReadConfig(t *testing.T) {
	c, err := ReadConfig("/etc/slurm/slurm.conf", readTexts(map[string]string{
		"/etc/slurm/slurm.conf":   "A=1\nClusterName=Big\ninclude  sub/a.conf # first\nB=2\nINCLUDE /opt/%c-%c.conf \n",
		"/etc/slurm/sub/a.conf":   "C=3\nInclude b.conf\n",
		"/etc/slurm/b.conf":       "A=4\nA=5",
		"/opt/big-big.conf":       "D=6\n",
		"/etc/slurm/sub/b.conf":   "wrong",
		"/etc/slurm/unwanted.not": "wrong",
	}))
	require.NoError(t, err)
	assert.Equal(t, "A=<1>\nClusterName=<Big>\nC=<3>\nA=<4>\nA=<5>\nB=<2>\nD=<6>", settingsText(c.Settings()))
	last, ok := c.Get("a")
	assert.True(t, ok)
	assert.Equal(t, "5", last.Value)
	assert.Equal(t, "/etc/slurm/b.conf:2:1", last.Position.String())
	assert.Len(t, c.All("A"), 3)
	var names []string
	for _, f := range c.Files() {
		names = append(names, f.Name())
	}
	assert.Equal(t, []string{"/etc/slurm/slurm.conf", "/etc/slurm/sub/a.conf", "/etc/slurm/b.conf", "/opt/big-big.conf"}, names)
}

func TestReadConfigProblems(t *testing.T) {
	deep := map[string]string{}
	for i := range MaxIncludeDepth + 2 {
		deep[fmt.Sprintf("/%d", i)] = fmt.Sprintf("Include %d\n", i+1)
	}
	tests := map[string]struct {
		texts map[string]string
		name  string
		want  string
	}{
		"no file":       {nil, "/s", "/s: cannot read /s: open /s: file does not exist; create it or correct the name"},
		"missing":       {map[string]string{"/s": "A=1\nInclude x\n"}, "/s", "/s:2:9: cannot read /x: open /x: file does not exist"},
		"itself":        {map[string]string{"/s": "Include t\n", "/t": "\nInclude s\n"}, "/s", "/t:2:9: /s includes itself (/s > /t > /s); remove the Include"},
		"deep":          {deep, "/0", "/16:1:9: /17 is more than 16 Includes deep; include it from a file further up"},
		"many":          {map[string]string{"/s": strings.Repeat("Include t\n", MaxFiles), "/t": "A=1\n"}, "/s", "/s:1000:9: more than 1000 files; include fewer"},
		"no cluster":    {map[string]string{"/s": "Include %c.conf\nClusterName=x\n"}, "/s", "/s:1:9: Include %c.conf: ClusterName is not known yet; put ClusterName before the Include"},
		"inside":        {map[string]string{"/s": "Include t\n", "/t": "\nA\n"}, "/s", `/t:2:1: "A" is no key=value`},
		"large include": {map[string]string{"/s": "Include t\n", "/t": strings.Repeat("\n", MaxFileSize+1)}, "/s", "/s:1:9: /t: the file has 16777217 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := ReadConfig(test.name, readTexts(test.texts))
			require.ErrorContains(t, err, test.want)
			assert.NotNil(t, c)
		})
	}
}

func TestReadConfigFromDisk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte("Include more.conf\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "more.conf"), []byte("A=1"), 0o600))
	c, err := ReadConfig(filepath.Join(dir, "slurm.conf"), nil)
	require.NoError(t, err)
	assert.Equal(t, "A=<1>", settingsText(c.Settings()))
	_, err = ReadConfig(dir, nil)
	require.ErrorContains(t, err, "make it readable for Slurm's user")
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{"24.11": {24, 11}, "24.11.7": {24, 11}, "slurm 26.05.3-1": {26, 5}, "slurm-wlm 24.11.5\n": {24, 11}, " 25.05 ": {25, 5}} {
		got, err := ParseVersion(text)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, text := range []string{"", "24", "x.y", "-1.2"} {
		_, err := ParseVersion(text)
		require.ErrorContains(t, err, "want one like 24.11 or 26.05.3")
	}
	assert.Equal(t, "26.05", Version{26, 5}.String())
}

func TestCheck(t *testing.T) {
	const min = "ClusterName=c\nSlurmctldHost=h\n"
	v24, v26 := Version{24, 11}, Version{26, 5}
	tests := map[string]struct {
		kind Kind
		v    Version
		text string
		want []string // problems; warnings with a ~ before them
	}{
		"fine":            {SlurmConf, v24, min + "NodeName=n[1-2] CPUs=4\nPartitionName=p Nodes=ALL\nDownNodes=n1 Reason=\"a b\"\nNodeSet=s Nodes=n1 Feature=f\n", nil},
		"nothing":         {SlurmConf, v24, "", []string{"x: there is no ClusterName; add ClusterName=<name>", "x: there is no SlurmctldHost; add SlurmctldHost=<host>"}},
		"unknown":         {SlurmConf, v24, min + "ResumeTimout=3\nFooBar=1\n", []string{`x:3:1: "ResumeTimout" is no key of slurm.conf in Slurm 24.11; is ResumeTimeout meant?`, `x:4:1: "FooBar" is no key of slurm.conf in Slurm 24.11; remove it`}},
		"unknown field":   {SlurmConf, v24, min + "NodeName=n CPU=4 Foo=1\n", []string{`x:3:12: "CPU" is no key of a NodeName line in Slurm 24.11; is CPUs meant?`}},
		"future":          {SlurmConf, Version{27, 5}, min + "NewThing=1\nPrologTimeout=4\n", []string{`~x:3:1: "NewThing" is no key of slurm.conf up to Slurm 26.05; remove it`}},
		"too young":       {SlurmConf, v24, min + "PrologTimeout=4\n", []string{"x:3:1: Slurm 24.11 does not know PrologTimeout yet; remove it, or use a Slurm that has it"}},
		"gone":            {SlurmConf, v26, min + "FrontendName=f\n", []string{"x:3:1: Slurm 26.05 knows FrontendName no longer; remove it"}},
		"between":         {SlurmConf, Version{25, 11}, min + "FrontendName=f\nPrologTimeout=4\n", []string{"~x:3:1: FrontendName is only for a Slurm that was built with --enable-front-end"}},
		"defunct":         {SlurmConf, v24, min + "PowerPlugin=x\n", []string{"~x:3:1: PowerPlugin has no effect any more; remove it"}},
		"became defunct":  {SlurmConf, v26, min + "GetEnvTimeout=nonsense\n", []string{"~x:3:1: GetEnvTimeout has no effect any more; remove it"}},
		"was a number":    {SlurmConf, v24, min + "GetEnvTimeout=nonsense\n", []string{`x:3:15: GetEnvTimeout="nonsense"; want a number, INFINITE or UNLIMITED`}},
		"numbers":         {SlurmConf, v24, min + "ResumeTimeout=65536\nSuspendTimeout=-1\nMaxJobCount=1k\nDefMemPerCPU=1.5\nKillWait=1k\nWaitTime=08\nTreeWidth=\"\"\n", []string{`x:3:15: ResumeTimeout="65536"; want a number from 0 to 65535`, `x:4:16: SuspendTimeout="-1"; want a number from 0 to 65535`, `x:6:14: DefMemPerCPU="1.5"; want a number`, `x:7:10: KillWait="1k"; want a number`, `x:8:10: WaitTime="08"; want a number`, `~x:9:11: Slurm reads an empty TreeWidth as 0; write 0 or remove it`}},
		"octal":           {SlurmConf, v24, min + "ResumeTimeout=0100\nSuspendTimeout=0x10\n", []string{`~x:3:15: Slurm reads ResumeTimeout=0100 as 64; write 64`, `~x:4:16: Slurm reads SuspendTimeout=0x10 as 16; write 16`}},
		"yes or no":       {SlurmConf, v24, min + "TrackWCKey=maybe\nPartitionName=p Default=on\n", []string{`x:3:12: TrackWCKey="maybe"; want yes or no`, `x:4:25: Default="on"; want yes or no`}},
		"suspend time":    {SlurmConf, v26, min + "SuspendTime=5m\nNodeName=n SuspendTime=none\n", []string{`~x:3:13: SuspendTime="5m"; want a number of seconds, NONE or INFINITE`}},
		"no fields":       {SlurmConf, v24, min + "MailProg=/a -s=x\n", []string{}},
		"fields":          {SlurmConf, v24, min + "MailProg=/a x=y\n", []string{`x:3:13: x behind MailProg, which takes no fields; give it a line of its own`}},
		"host's fields":   {SlurmConf, v24, "ClusterName=c\nSlurmctldHost=h Port=1\n", []string{`x:2:17: "Port" is no key of a SlurmctldHost line in Slurm 24.11; remove it`}},
		"twice":           {SlurmConf, v24, min + "ReturnToService=1\nreturntoservice=2\nProlog=/a\nProlog=/b\n", []string{"~x:4:1: returntoservice stands at x:3:1, too; Slurm takes the last and complains in all its programs; remove one"}},
		"field twice":     {SlurmConf, v24, min + "NodeName=n CPUs=1 cpus=2\n", []string{"~x:3:19: cpus stands twice in the line; Slurm takes the last; remove one"}},
		"operator":        {SlurmConf, v24, min + "DebugFlags+=Power\n", []string{"~x:3:1: Slurm reads DebugFlags+= as DebugFlags=; write the whole value with ="}},
		"old names":       {SlurmConf, v24, "ClusterName=c\nControlMachine=h\nPartitionName=p Shared=NO\n", []string{"~x:2:1: ControlMachine is an old name; write SlurmctldHost", "~x:3:17: Shared is an old name; write OverSubscribe"}},
		"hostlists":       {SlurmConf, v24, min + "NodeName=n[3-1]\nDownNodes=n[\nNodeName=m NodeAddr=m[1\n", []string{`x:3:10: NodeName: hostlist`, `x:4:11: DownNodes: hostlist`, `x:5:21: NodeAddr: hostlist`}},
		"reserved":        {SlurmConf, v24, min + "NodeName=all\nNodeName=default NodeAddr=x BcastAddr=y\n", []string{"x:3:10: NodeName=all is a word of Slurm's own; choose another name", "x:4:18: NodeAddr cannot stand in NodeName=DEFAULT", "x:4:29: BcastAddr cannot stand"}},
		"node twice":      {SlurmConf, v24, min + "NodeName=n[1-3]\nNodeName=n[3-9]\n", []string{`x:4:10: node "n3" stands at x:3:1, too, and slurmctld does not start with two`}},
		"too many nodes":  {SlurmConf, v24, min + "NodeName=n[1-1000000]\nNodeName=m[1-1000000]\n", []string{`x:4:10: more than 1048576 nodes`}},
		"partition twice": {SlurmConf, v24, min + "PartitionName=DEFAULT\nPartitionName=p\nPartitionName=default\nPartitionName=p\n", []string{`x:6:15: partition "p" stands at x:4:1, too, and slurmctld does not start with two`}},
		"hosts":           {SlurmConf, v24, "ClusterName=c\nSlurmctldHost=a(\nSlurmctldHost=b)\nSlurmctldHost=c(d)e\nSlurmctldHost=f(1)\nSlurmctldHost=f(2)\n", []string{`x:2:15: SlurmctldHost="a("; write name or name(address)`, "x:3:15", "x:4:15", `x:6:15: SlurmctldHost "f" stands at x:5:1, too`}},
		"removed": {SlurmConf, v24, min + "SallocDefaultCommand=x\nFastSchedule=2\nFastSchedule=1\nAccountingStorageLoc=x\n", []string{"x:3:1: SallocDefaultCommand has been removed from Slurm; write LaunchParameters=use_interactive_step",
			"x:4:1: FastSchedule has been removed", "~x:5:1: FastSchedule stands at x:4:1", "x:6:1: AccountingStorageLoc has been removed"}},
		"select type": {SlurmConf, v24, min + "SelectTypeParameters=cr_core,CR_LLN\nPartitionName=p SelectTypeParameters=CR_Core_Memory State=up\n", nil},
		"select types": {SlurmConf, v24, min + "SelectTypeParameters=CR_Cores\nSelectTypeParameters=CR_CPU,CR_Core,CR_ONE_TASK_PER_CORE,CR_NO_DIST_TOPO_BLOCK\n", []string{
			`x:3:22: SelectTypeParameters: "CR_CORES" is no word of it; Slurm has CR_SOCKET, `, "x:4:22: SelectTypeParameters: Slurm 24.11 does not know CR_NO_DIST_TOPO_BLOCK yet", "x:4:22: SelectTypeParameters=CR_CPU,CR_Core,", "x:4:22: SelectTypeParameters: CR_ONE_TASK_PER_CORE does not go with CR_CPU; write CR_CORE instead", "~x:4:1: SelectTypeParameters stands at"}},
		"power actions": {SlurmConf, v26, min + "PowerAction=a Program=/a Location=SlurmCtld\nPowerAction=b Program=b Location=slurmd\nPowerAction=c Program=/c\nPowerAction=d Program=/d Location=here\nPowerAction=e Location=slurmd\nPowerAction=f Location=slurmctld Program=f\n", []string{
			`x:5:1: PowerAction "c" has no Location, and slurmctld does not start with it; add Location=slurmctld, or Location=slurmd`, `x:6:35: Location="here"; write slurmctld or slurmd`,
			`x:7:1: PowerAction "e" has no Program`, `x:8:42: slurmctld does not start with Program="f", which is no absolute path; write an absolute path`}},
		"partition's words": {SlurmConf, v24, min + "PartitionName=p State=on SelectTypeParameters=CR_CPU\n", []string{`x:3:23: State="on"; write UP, DOWN, DRAIN or INACTIVE`, `x:3:47: a partition's SelectTypeParameters="CR_CPU"`}},
		"gres.conf":         {GresConf, v24, "AutoDetect=off\nName=gpu Type=h100 File=/dev/nvidia[0-3] Cores=0-7\nNodeName=n[1-2] Name=gpu Count=2\nName=gpu CPU=3\n", []string{`x:4:10: "CPU" is no key of a Name line in Slurm 24.11; is CPUs meant?`}},
		"cgroup.conf":       {CgroupConf, v24, "ConstrainCores=yes\nAllowedRAMSpace=99.5\nMaxRAMPercent=lots\nCgroupAutomount=yes\nCgroupSlice=x\n", []string{`x:3:15: MaxRAMPercent="lots"; want a number`, "~x:4:1: CgroupAutomount has no effect any more; remove it", "x:5:1: Slurm 24.11 does not know CgroupSlice yet"}},
		"topology.conf":     {TopologyConf, v26, "SwitchName=s0 Nodes=n[0-3] LinkSpeed=x\nBlockName=b Nodes=n[\n", []string{`x:1:38: LinkSpeed="x"; want a number`, "x:2:19: Nodes: hostlist"}},
		"slurmdbd.conf":     {SlurmdbdConf, v24, "DbdHost=a\nStoragePort=3306\nMaxPurgeLimit=5\n", []string{"x:3:1: Slurm 24.11 does not know MaxPurgeLimit yet"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := ReadConfig("x", readTexts(map[string]string{"x": test.text}))
			if name == "no fields" { // -s=x has no key
				require.ErrorContains(t, err, `"-s=x" is no key=value`)
				return
			}
			require.NoError(t, err)
			problems := c.Check(test.kind, test.v)
			errs := 0
			require.Len(t, problems, len(test.want), "%v", problems)
			for i, p := range problems {
				text := p.Error()
				if p.Warning {
					text = "~" + text
				} else {
					errs++
				}
				assert.Contains(t, text, test.want[i])
				assert.True(t, strings.HasPrefix(text, test.want[i]), text)
			}
			assert.Equal(t, errs > 0, problems.Err() != nil)
		})
	}
}
