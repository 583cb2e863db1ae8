package spool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Where things are when nobody says otherwise.
const (
	DefaultSpool       = "/var/spool/slurmtide"
	DefaultGateTimeout = 5 * time.Minute
	DefaultScontrol    = "/usr/bin/scontrol"
	defaultSlurmDir    = "/etc/slurm"
	settingsName       = "slurmtide.conf"
)

// Settings is what slurmtide.conf says to the programs.
type Settings struct {
	// Spool is the spool directory (key Spool; the environment's SLURMTIDE_SPOOL wins).
	Spool string
	// LogFile is where the programs log (key LogFile), by default programs.log in the spool.
	LogFile string
	// GateTimeout is how long a start gate waits at most (key GateTimeout, in seconds or
	// with a unit like 5m). A start gate also stops in time for PrologEpilogTimeout.
	GateTimeout time.Duration
	// GateChain is a program that the start gate runs beside its wait (key GateChain: an
	// absolute path and arguments, separated by blanks): the way to chain a site's own
	// PrologSlurmctld, because slurm.conf passes no arguments to one.
	GateChain []string
	// Scontrol is Slurm's command (key Scontrol), by default /usr/bin/scontrol. A start gate tells users with it why an
	// interactive job ends.
	Scontrol string
	// SlurmConf is the slurm.conf these settings belong to: $SLURM_CONF, or slurm.conf
	// in the directory the settings were looked for in.
	SlurmConf string
}

// File is the settings file that counts, whether it is there or not.
func (s Settings) File() string { return filepath.Join(filepath.Dir(s.SlurmConf), settingsName) }

// LoadSettings reads slurmtide.conf in the directory of $SLURM_CONF. slurmctld sets
// SLURM_CONF for the power save programs but not for PrologSlurmctld; without it the
// file is looked for beside the running program and then in /etc/slurm.
//
// A wrong line must not cost a request: it is left out, the default holds, and a warning
// says so. The file has one key=value a line, keys in any case, comments from # on.
func LoadSettings(env func(string) string) (Settings, []error) {
	slurmConf := env("SLURM_CONF")
	if slurmConf == "" {
		slurmConf = filepath.Join(defaultSlurmDir, "slurm.conf")
		if exe, err := os.Executable(); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(exe), settingsName)); err == nil {
				slurmConf = filepath.Join(filepath.Dir(exe), "slurm.conf")
			}
		}
	}
	s, warnings := loadSettings(Settings{SlurmConf: slurmConf}.File())
	s.SlurmConf = slurmConf
	if dir := env("SLURMTIDE_SPOOL"); dir != "" {
		if abs, err := filepath.Abs(dir); err == nil {
			s.Spool = abs
		}
	}
	if s.LogFile == "" {
		s.LogFile = layout{s.Spool}.logFile()
	}
	return s, warnings
}

// maxSettings bounds what is read of a settings file.
const maxSettings = 64 << 10

func loadSettings(path string) (Settings, []error) {
	s := Settings{Spool: DefaultSpool, GateTimeout: DefaultGateTimeout, Scontrol: DefaultScontrol}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, []error{fmt.Errorf("reading settings: %w; going on with defaults", err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSettings))
	if err != nil {
		return s, []error{fmt.Errorf("reading settings: %w; going on with defaults", err)}
	}
	return parseSettings(s, path, data)
}

// parseSettings applies the lines of a settings file to s.
func parseSettings(s Settings, path string, data []byte) (Settings, []error) {
	var warnings []error
	line := 0
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		line++
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		key, value, ok := strings.Cut(text, "=")
		err := errors.New("not of the form key=value")
		if ok {
			err = s.set(strings.TrimSpace(key), unquote(strings.TrimSpace(value)))
		}
		if err != nil {
			warnings = append(warnings, fmt.Errorf("%s line %d: %w; the line is ignored", path, line, err))
		}
	}
	if err := lines.Err(); err != nil {
		warnings = append(warnings, fmt.Errorf("%s line %d: %w; the rest is ignored", path, line+1, err))
	}
	return s, warnings
}

// unquote removes the quotes around a value.
func unquote(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

func (s *Settings) set(key, value string) error {
	switch strings.ToLower(key) {
	case "spool":
		return setPath(&s.Spool, key, value)
	case "logfile":
		return setPath(&s.LogFile, key, value)
	case "gatetimeout":
		d, err := parseSeconds(value)
		if err != nil {
			return fmt.Errorf("%s=%.60s: %w", key, value, err)
		}
		s.GateTimeout = d
	case "gatechain":
		args := strings.Fields(value)
		if len(args) == 0 || !filepath.IsAbs(args[0]) {
			return fmt.Errorf("%s=%.60s: needs an absolute path", key, value)
		}
		s.GateChain = args
	case "scontrol":
		return setPath(&s.Scontrol, key, value)
	default:
		return fmt.Errorf("unknown key %.60q; known are Spool, LogFile, GateTimeout, GateChain, Scontrol", key)
	}
	return nil
}

func setPath(p *string, key, value string) error {
	if !filepath.IsAbs(value) {
		return fmt.Errorf("%s=%.60s: needs an absolute path", key, value)
	}
	*p = filepath.Clean(value)
	return nil
}

// parseSeconds reads a number of seconds, as Slurm writes times, or a Go duration.
func parseSeconds(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if n, numErr := strconv.ParseUint(text, 10, 31); numErr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, errors.New("needs a number of seconds, or a duration like 90s or 5m")
	}
	return d, nil
}
