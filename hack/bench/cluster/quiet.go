package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	quietShare   = 0.3 // of the machine, at most
	quietFor     = time.Second
	quietPatient = 30 * time.Second
)

// quiet waits until the machine, which is the cluster's, too, has done little for a second: the pods that are gone are gone from the API server
// long before scheduler, controllers and Events are done with them. It does not wait for long: somebody else may be at work.
func (b *bench) quiet() error {
	for end := time.Now().Add(quietPatient); time.Now().Before(end) && b.ctx.Err() == nil; {
		before, err := readBusy()
		if err != nil {
			return err
		}
		time.Sleep(quietFor)
		after, err := readBusy()
		if err != nil || after.since(before) <= quietShare {
			return err
		}
	}
	return b.ctx.Err()
}

// busy is how long the machine's CPUs have worked, of how long they could have, in ticks.
type busy struct{ worked, all float64 }

func (b busy) since(before busy) float64 { return (b.worked - before.worked) / (b.all - before.all) }

func readBusy() (busy, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return busy{}, err
	}
	return parseBusy(string(text))
}

func parseBusy(stat string) (b busy, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return b, fmt.Errorf("/proc/stat begins with %q", line)
	}
	for i, f := range fields[1:9] { // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return b, err
		}
		b.all += v
		if i != 3 && i != 4 {
			b.worked += v
		}
	}
	return b, nil
}
