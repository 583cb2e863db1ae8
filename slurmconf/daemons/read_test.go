//go:build integration

package daemons_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slurmtide/slurmtide/slurmconf"
)

func TestSlurmctldReadsTheSame(t *testing.T) {
	s := findSlurm(t)
	tests := map[string]map[string]string{
		"least": {"slurm.conf": base + "NodeName=n State=CLOUD\nPartitionName=p Nodes=n\n"},
		"all at once": {"slurm.conf": base +
			"GresTypes=gpu # one\nresumetimeout = 300\nSuspendTime=\t0100\nSuspendTimeout=0x10\nResumeRate \\\n= \\\n7\r\nSchedulerParameters+=defer\n" +
			"MailDomain=\"a b\\#c\\\\d\"\nSelectTypeParameters=CR_Core\nSelectTypeParameters=CR_CPU # the last\nInclude nodes.conf # here\nInclude %c.conf \n" +
			"PartitionName=DEFAULT MaxTime=60 SuspendTime=5 ResumeTimeout=7\nPartitionName=p Nodes=\"n1 n2\" Default=YES\nPartitionName=q Nodes=ALL SuspendTime=90\n",
			"nodes.conf": "NodeName=DEFAULT State=CLOUD CPUs=8 Feature=a,b RealMemory=1000\nNodeName=DEFAULT RealMemory=2000\n" +
				"NodeName=n[1-3] NodeAddr=10.0.0.[1-3] Gres=gpu:2 \\\n\tRealMemory=3000 # MiB\n",
			"test.conf": "NodeName=m[01-02] Features=c Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CPUs=16 Weight=INFINITE TmpDisk=010\nNodeName=DEFAULT CPUs=2\nNodeName=k CPUs=4 cpus=6"},
		"quotes": {"slurm.conf": base + "MailDomain=a\"b\nNodeName=n Features=\"x,y\" State=\"CLOUD\"\nPartitionName=p Nodes=n\n"},
		"open":   {"slurm.conf": base + "MailDomain=\"b\nNodeName=n State=CLOUD\nPartitionName=p Nodes=n\n"},
		"eaten":  {"slurm.conf": base + "MailDomain=\\\nx\\\n\\y=z\nNodeName=n State=CLOUD Reason= CPUs=4\nPartitionName=p Nodes=n\n"},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) { s.compare(t, files) })
	}
}

// What edits write is read by slurmctld as it was meant.
func TestSlurmctldReadsEdits(t *testing.T) {
	s := findSlurm(t)
	f, err := slurmconf.ParseFile("slurm.conf", []byte(base+"# ours\nNodeName=n[1-2] State=CLOUD # cloud\nPartitionName=p Nodes=ALL"))
	require.NoError(t, err)
	for _, err := range []error{
		f.Set("MailDomain", `a #\ b`), f.Set("ResumeTimeout", "90"), f.Set("ReturnToService", "1"),
		f.AddWords("SlurmctldParameters", "idle_on_node_suspend", "power_save_interval=0"),
		f.RemoveWords("SlurmctldParameters", "enable_configless"),
		f.SetField("NodeName", "n[1-2]", "CPUs", "4"), f.SetField("NodeName", "n[1-2]", "Feature", "x,y"),
		f.Add("NodeName=k State=CLOUD"),
	} {
		require.NoError(t, err)
	}
	s.compare(t, map[string]string{"slurm.conf": f.String()})
}

func TestSlurmctldReadsAnyTextTheSame(t *testing.T) {
	s := findSlurm(t)
	left := 25 // a start costs half a second
	rapid.Check(t, func(t *rapid.T) {
		if left--; left < 0 {
			return
		}
		s.compare(t, drawFiles(t))
	})
}

// drawFiles draws a configuration that is written in odd ways.
func drawFiles(t *rapid.T) map[string]string {
	files := map[string]string{}
	var conf, extra strings.Builder
	conf.WriteString(base)
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	blank := func() string { return pick("blank", "", " ", "\t", " \\\n ", "\\\n") }
	number := func(most int) string {
		return fmt.Sprintf(pick("base", "%d", "%d", "%#x", "%#o", "+%d"), rapid.IntRange(1, most).Draw(t, "n"))
	}
	oddCase := func(key string) string {
		return pick("case", key, strings.ToLower(key), strings.ToUpper(key))
	}
	value := func(v string) string {
		return pick("quotes", v, v, `"`+v+`"`, `\`+v)
	}
	pair := func(key, v string) string {
		return oddCase(key) + blank() + pick("operator", "=", "=", "=", "+=", "-=", "*=", "/=") + blank() + value(v)
	}
	end := func() string { return pick("end", "\n", "\n", " \n", "\r\n", " # c \\\n", "#c=d\n", "\n\n#\n") }
	for range rapid.IntRange(0, 12).Draw(t, "options") {
		out := &conf
		if rapid.Bool().Draw(t, "included") {
			out = &extra
		}
		var text string
		switch rapid.IntRange(0, 6).Draw(t, "option") {
		case 0:
			text = pair(pick("key", "ResumeTimeout", "SuspendTimeout", "SlurmdTimeout"), number(5000))
		case 1:
			text = pair(pick("key", "ResumeRate", "SuspendRate"), number(500))
		case 2:
			text = pair("SuspendTime", pick("time", "300", "010", "-1", "NONE", "infinite", "77"))
		case 3:
			text = pair("ReturnToService", pick("r", "0", "1", "2"))
		case 4:
			text = pair("SelectTypeParameters", pick("s", "CR_Core", "CR_CPU_MEMORY", "cr_socket"))
		case 5:
			text = pair("SchedulerParameters", pick("w", "defer", "defer,bf_interval=5"))
		default:
			text = "MailDomain=" + pick("mail", `a\#b`, `a\\b`, `a\b`, `"a b"`, `"a \# b"`, `a"b"`, `"a"b`, `'a'`, `é`, `"a\`+"\n"+`b"`, `a=b`, `=`)
		}
		out.WriteString(text)
		out.WriteString(end())
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		name := fmt.Sprintf("n%d", i)
		if i > 0 && rapid.Bool().Draw(t, "default") {
			name = "DEFAULT"
		} else if rapid.Bool().Draw(t, "list") {
			name += "x[08-11]"
		}
		conf.WriteString(pair("NodeName", name) + " State=CLOUD")
		for range rapid.IntRange(0, 6).Draw(t, "fields") {
			conf.WriteString(" " + blank())
			key := pick("field", "CPUs", "Procs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "TmpDisk", "Weight", "Feature", "Features")
			if strings.HasPrefix(key, "Feature") {
				conf.WriteString(pair(key, pick("f", "a", "b,c")))
			} else {
				conf.WriteString(pair(key, number(16)))
			}
		}
		conf.WriteString(end())
	}
	conf.WriteString("PartitionName=DEFAULT " + pair(pick("d", "SuspendTime", "ResumeTimeout", "SuspendTimeout"), "44") + end())
	conf.WriteString("PartitionName=p Nodes=ALL " + pair(pick("d", "SuspendTime", "ResumeTimeout", "SuspendTimeout"), "55") + end())
	if extra.Len() > 0 {
		conf.WriteString(oddCase("Include") + " more.conf" + pick("include", "\n", " # c\n", "\t\r\n"))
		files["more.conf"] = extra.String()
	}
	files["slurm.conf"] = conf.String()
	return files
}

func TestSlurmctldRefusesWhatWeRefuse(t *testing.T) {
	s := findSlurm(t)
	const nodes = "NodeName=n State=CLOUD\nPartitionName=p Nodes=n\n"
	old, young := s.version == slurmconf.Version{Major: 24, Minor: 11}, s.version == slurmconf.Version{Major: 26, Minor: 5}
	require.True(t, old || young, "no expectations for Slurm %s", s.version)
	tests := map[string]struct {
		text    string
		refused bool
	}{
		"fine":            {base + nodes, false},
		"no value":        {base + nodes + "ResumeTimeout=\n", true},
		"empty value":     {base + nodes + "ResumeTimeout=\"\"\n", false},
		"no pair":         {base + nodes + "hello\n", true},
		"words behind":    {base + nodes + "MailDomain=a b\n", true},
		"open quote":      {base + nodes + "MailDomain=\"a b\n", true},
		"bad key":         {base + nodes + "Mail-Domain=a\n", true},
		"late include":    {base + nodes + " Include x.conf\n", true},
		"two files":       {base + nodes + "Include x.conf x.conf\n", true},
		"glob":            {base + nodes + "Include x*.conf\n", true},
		"no cluster yet":  {"Include %c.conf\n" + base + nodes, true},
		"no cluster":      {strings.Replace(base, "ClusterName=Test\n", "", 1) + nodes, true},
		"no host":         {strings.Replace(base, "SlurmctldHost=ctl(127.0.0.1)\n", "", 1) + nodes, true},
		"same host":       {base + "SlurmctldHost=ctl\n" + nodes, true},
		"bad host":        {base + "SlurmctldHost=a(b\n" + nodes, true},
		"unknown":         {base + nodes + "ResumeTimout=4\n", true},
		"unknown field":   {base + "NodeName=n State=CLOUD CPU=4\nPartitionName=p Nodes=n\n", true},
		"fields":          {base + nodes + "MailProg=/usr/bin/true x=y\n", true},
		"too large":       {base + nodes + "ResumeTimeout=65536\n", true},
		"negative":        {base + nodes + "ResumeTimeout=-1\n", true},
		"bad octal":       {base + nodes + "ResumeTimeout=08\n", true},
		"16 bits and k":   {base + nodes + "ResumeTimeout=1k\n", true},
		"32 bits and k":   {base + nodes + "MaxJobCount=10k\n", false},
		"infinite":        {base + nodes + "TCPTimeout=INFINITE\n", false},
		"not a number":    {base + nodes + "DefMemPerCPU=1.5\n", true},
		"yes or no":       {base + nodes + "TrackWCKey=maybe\n", true},
		"yes":             {base + nodes + "TrackWCKey=Up\n", false},
		"field's number":  {base + "NodeName=n State=CLOUD CPUs=many\nPartitionName=p Nodes=n\n", true},
		"hostlist":        {base + "NodeName=n[3-1] State=CLOUD\nPartitionName=p Nodes=ALL\n", true},
		"ALL":             {base + "NodeName=ALL State=CLOUD\n", true},
		"default address": {base + "NodeName=DEFAULT NodeAddr=x\n" + nodes, true},
		"node twice":      {base + nodes + "NodeName=n State=CLOUD\n", true},
		"partition twice": {base + nodes + "PartitionName=p Nodes=n\n", true},
		"option twice":    {base + nodes + "ReturnToService=1\n", false},
		"defunct":         {base + nodes + "PowerPlugin=x\n", false},
		"young":           {base + nodes + "PrologTimeout=60\n", old},
		"young field":     {base + "NodeName=n State=CLOUD SuspendTime=60\nPartitionName=p Nodes=n\n", old},
		"removed":         {base + nodes + "AccountingStorageLoc=x\n", true},
		"removed, too":    {base + nodes + "AccountingStoreJobComment=yes\n", true},
		"salloc":          {base + nodes + "SallocDefaultCommand=x\n", true},
		"FastSchedule=1":  {base + nodes + "FastSchedule=1\n", false},
		"FastSchedule=2":  {base + nodes + "FastSchedule=2\n", true},
		"select":          {base + nodes + "SelectTypeParameters=CR_Cores\n", true},
		"two selects":     {base + nodes + "SelectTypeParameters=CR_Core,CR_CPU\n", true},
		"select and more": {base + nodes + "SelectTypeParameters=CR_Core,CR_LLN\n", false},
		"young select":    {base + nodes + "SelectTypeParameters=CR_Core,CR_NO_DIST_TOPO_BLOCK\n", old},
		"CPU and core":    {base + nodes + "SelectTypeParameters=CR_CPU,CR_ONE_TASK_PER_CORE\n", true},
		"state":           {base + nodes + "PartitionName=q Nodes=n State=on\n", true},
		"part's select":   {base + nodes + "PartitionName=q Nodes=n SelectTypeParameters=CR_CPU\n", true},
		"action":          {base + nodes + "PowerAction=a Program=/usr/bin/true Location=Slurmctld\n", old},
		"action's place":  {base + nodes + "PowerAction=a Program=/usr/bin/true\n", true},
		"action's places": {base + nodes + "PowerAction=a Program=/usr/bin/true Location=here\n", true},
		"action alone":    {base + nodes + "PowerAction=a Location=slurmd\n", true},
		"action's path":   {base + nodes + "PowerAction=a Program=true Location=slurmctld\n", true},
		"became defunct":  {base + nodes + "GetEnvTimeout=x\n", old},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, _ := s.write(t, map[string]string{"slurm.conf": test.text, "x.conf": "#\n"})
			defer os.RemoveAll(dir)
			config, err := slurmconf.ReadConfig(dir+"/slurm.conf", nil)
			if err == nil {
				_, err = config.Cluster(s.version)
			}
			require.Equal(t, test.refused, err != nil, "slurmconf: %v", err)
			got := s.start(t, dir)
			require.Equal(t, test.refused, got.refused, "slurmctld: %s", got.output)
			if got.refused {
				t.Log(got.output)
			}
		})
	}
}

// What is drawn is broken more often than not.
func TestSlurmctldRefusesAnyTextAlike(t *testing.T) {
	s := findSlurm(t)
	left := 25
	pieces := []string{"MailDomain", "mailprog", "ResumeTimeout", "DownNodes", "Reason", "Foo", "=", "=", "=", "=", "+=", "-", " ", " ", "\t", "\r", "\"", "\"", "\\",
		"\\\n", "\n", "\n", "\n", "#", "\\#", "1", "0x", "n", "k", ".", "é"}
	rapid.Check(t, func(t *rapid.T) {
		if left--; left < 0 {
			return
		}
		drawn := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "text"), "")
		text := base + drawn + "\n" + "NodeName=n State=CLOUD\nPartitionName=p Nodes=n\n"
		dir, _ := s.write(t, map[string]string{"slurm.conf": text})
		defer os.RemoveAll(dir)
		config, err := slurmconf.ReadConfig(dir+"/slurm.conf", nil)
		if err == nil {
			_, err = config.Cluster(s.version)
		}
		got := s.start(t, dir)
		require.Equal(t, err != nil, got.refused, "%q: slurmconf: %v; slurmctld: %s", drawn, err, got.output)
	})
}
