package spool

import (
	"log/slog"
	"os"
	"syscall"
)

// maxLog is the size at which the log is rotated, to one older file.
const maxLog = 8 << 20

// logWriter appends whole lines to a log that many processes share. It opens the file
// for each line, which is all that most programs write. Its errors are nobody's concern:
// a request must not fail for its log line.
type logWriter struct {
	path string
	max  int64
}

// programLog returns the log of one program run.
func programLog(path, program string) *slog.Logger {
	h := slog.NewTextHandler(logWriter{path, maxLog}, nil)
	return slog.New(h).With("program", program, "pid", os.Getpid())
}

func (l logWriter) Write(line []byte) (int, error) {
	f, err := l.open()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() >= l.max {
		if next, err := l.rotate(f); err == nil {
			defer next.Close()
			return next.Write(line)
		}
	}
	return f.Write(line)
}

func (l logWriter) open() (*os.File, error) {
	return os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
}

// rotate renames the full log f, unless another process was faster, and opens its successor.
// A process that still holds f writes its last line into the renamed file.
func (l logWriter) rotate(f *os.File) (*os.File, error) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, err
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if named, err := os.Stat(l.path); err == nil && os.SameFile(mine, named) {
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return nil, err
		}
	}
	return l.open()
}
