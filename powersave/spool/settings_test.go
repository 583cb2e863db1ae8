package spool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSettings(t *testing.T) {
	defaults := Settings{Spool: DefaultSpool, GateTimeout: DefaultGateTimeout}
	with := func(change func(*Settings)) Settings {
		s := defaults
		change(&s)
		return s
	}
	tests := map[string]struct {
		text     string
		want     Settings
		warnings []string
	}{
		"empty":    {"", defaults, nil},
		"comments": {"# Spool=/x\n\n   # y\n", defaults, nil},
		"all": {"Spool=/a/b/\nLogFile = /var/log/x.log # here\nGATETIMEOUT=90\ngatechain=/opt/prolog --fast  a\n",
			Settings{Spool: "/a/b", LogFile: "/var/log/x.log", GateTimeout: 90 * time.Second, GateChain: []string{"/opt/prolog", "--fast", "a"}}, nil},
		"quoted":        {`Spool="/a b"`, with(func(s *Settings) { s.Spool = "/a b" }), nil},
		"duration":      {"GateTimeout=2m30s", with(func(s *Settings) { s.GateTimeout = 150 * time.Second }), nil},
		"no wait":       {"GateTimeout=0", with(func(s *Settings) { s.GateTimeout = 0 }), nil},
		"last wins":     {"Spool=/a\nSpool=/b", with(func(s *Settings) { s.Spool = "/b" }), nil},
		"windows ends":  {"Spool=/a\r\n", with(func(s *Settings) { s.Spool = "/a" }), nil},
		"unknown key":   {"Spol=/a\nLogFile=/l", with(func(s *Settings) { s.LogFile = "/l" }), []string{`x.conf line 1: unknown key "Spol"; known are Spool, LogFile, GateTimeout, GateChain, Scontrol; the line is ignored`}},
		"no value":      {"Spool", defaults, []string{"x.conf line 1: not of the form key=value"}},
		"scontrol":      {"Scontrol=/opt/slurm/bin/scontrol", with(func(s *Settings) { s.Scontrol = "/opt/slurm/bin/scontrol" }), nil},
		"relative":      {"Spool=a\nLogFile=b\nGateChain=c", defaults, []string{"line 1: Spool=a: needs an absolute path", "line 2: LogFile=b", "line 3: GateChain=c"}},
		"empty chain":   {"GateChain=", defaults, []string{"needs an absolute path"}},
		"bad time":      {"GateTimeout=soon\nGateTimeout=-1\nGateTimeout=-5s", defaults, []string{"GateTimeout=soon: needs a number of seconds", "line 2", "line 3"}},
		"huge time":     {"GateTimeout=99999999999999999999", defaults, []string{"line 1"}},
		"line too long": {"LogFile=/l\nSpool=/" + strings.Repeat("a", maxSettings), with(func(s *Settings) { s.LogFile = "/l" }), []string{"token too long"}},
		"garbage":       {"\x00\x01=\xff", defaults, []string{"unknown key"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, warnings := parseSettings(defaults, "x.conf", []byte(test.text))
			assert.Equal(t, test.want, got)
			require.Len(t, warnings, len(test.warnings))
			for i, w := range warnings {
				assert.ErrorContains(t, w, test.warnings[i])
			}
		})
	}
}

func TestLoadSettings(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "slurm.conf")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "slurmtide.conf"), []byte("Spool=/from/file\n"), 0o600))
	empty := filepath.Join(t.TempDir(), "slurm.conf")
	unreadable := filepath.Join(t.TempDir(), "slurm.conf")
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(unreadable), "slurmtide.conf"), 0o700))

	tests := map[string]struct {
		env      map[string]string
		want     Settings
		warnings int
	}{
		"beside slurm.conf": {map[string]string{"SLURM_CONF": conf}, Settings{Spool: "/from/file", LogFile: "/from/file/programs.log", GateTimeout: DefaultGateTimeout, Scontrol: DefaultScontrol, SlurmConf: conf}, 0},
		"environment wins":  {map[string]string{"SLURM_CONF": conf, "SLURMTIDE_SPOOL": "/env"}, Settings{Spool: "/env", LogFile: "/env/programs.log", GateTimeout: DefaultGateTimeout, Scontrol: DefaultScontrol, SlurmConf: conf}, 0},
		"no file":           {map[string]string{"SLURM_CONF": empty}, Settings{Spool: DefaultSpool, LogFile: DefaultSpool + "/programs.log", GateTimeout: DefaultGateTimeout, Scontrol: DefaultScontrol, SlurmConf: empty}, 0},
		"unreadable":        {map[string]string{"SLURM_CONF": unreadable}, Settings{Spool: DefaultSpool, LogFile: DefaultSpool + "/programs.log", GateTimeout: DefaultGateTimeout, Scontrol: DefaultScontrol, SlurmConf: unreadable}, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, warnings := LoadSettings(func(k string) string { return test.env[k] })
			assert.Equal(t, test.want, got)
			assert.Len(t, warnings, test.warnings)
		})
	}
	t.Run("no SLURM_CONF", func(t *testing.T) {
		got, _ := LoadSettings(func(string) string { return "" })
		assert.Equal(t, "/etc/slurm/slurm.conf", got.SlurmConf)
	})
}

func TestSlurmTimes(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  slurmTimes
	}{
		"none":           {map[string]string{"slurm.conf": "ClusterName=x\n"}, slurmTimes{}},
		"missing file":   {nil, slurmTimes{}},
		"set":            {map[string]string{"slurm.conf": "ClusterName=x\nPrologEpilogTimeout=60\nResumeTimeout=300\n"}, slurmTimes{Prolog: time.Minute, Resume: 5 * time.Minute}},
		"written freely": {map[string]string{"slurm.conf": "  prologepilogtimeout = 60 # s\n\tRESUMETIMEOUT= 9"}, slurmTimes{Prolog: time.Minute, Resume: 9 * time.Second}},
		"commented out":  {map[string]string{"slurm.conf": "#PrologEpilogTimeout=60\n# ResumeTimeout=5\n"}, slurmTimes{}},
		"both":           {map[string]string{"slurm.conf": "PrologEpilogTimeout=60\nPrologTimeout=30\n"}, slurmTimes{Prolog: 30 * time.Second}},
		"not for us":     {map[string]string{"slurm.conf": "EpilogTimeout=30\nPartitionName=a ResumeTimeout=3\n"}, slurmTimes{}},
		"suspended":      {map[string]string{"slurm.conf": "SuspendTime = 300\nSuspendTimeout=30\n"}, slurmTimes{Suspend: 5 * time.Minute}},
		"shortest":       {map[string]string{"slurm.conf": "SuspendTime=300\nPartitionName=a suspendtime=60 Nodes=ALL\nPartitionName=b SuspendTime=90\n"}, slurmTimes{Suspend: time.Minute}},
		"all at once":    {map[string]string{"slurm.conf": "ResumeRate=300\nInclude more.conf\n", "more.conf": " resumerate = 0 # no limit\n"}, slurmTimes{AllAtOnce: true}},
		"by a rate":      {map[string]string{"slurm.conf": "ResumeRate=0\nResumeRate=100\n"}, slurmTimes{}},
		"never":          {map[string]string{"slurm.conf": "SuspendTime=INFINITE\nPartitionName=a SuspendTime=-1\n"}, slurmTimes{}},
		"infinite":       {map[string]string{"slurm.conf": "PrologEpilogTimeout=INFINITE\nResumeTimeout=many"}, slurmTimes{}},
		"included":       {map[string]string{"slurm.conf": "Include sub.conf\nInclude missing.conf\n", "sub.conf": "PrologTimeout=5"}, slurmTimes{Prolog: 5 * time.Second}},
		"endless":        {map[string]string{"slurm.conf": "include slurm.conf\nPrologTimeout=5\n"}, slurmTimes{Prolog: 5 * time.Second}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			assert.Equal(t, test.want, readSlurmTimes(filepath.Join(dir, "slurm.conf")))
		})
	}
}
