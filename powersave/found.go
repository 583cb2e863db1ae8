package powersave

import (
	"fmt"
	"time"
)

// found looks for jobs that were given back, and do not rest, or have nodes still that came up for them: whoever was about to see to that
// is no more. It is done once after the start, and when another bridge has led before; again only while a job is about to leave its nodes.
type found struct {
	begun   time.Time
	reading bool
	done    bool
	tries   int
	retryAt time.Time
	held    map[uint32]bool // jobs that we have held off meanwhile: people may have them start sooner
}

// foundAgain is the pause before another look at jobs that are about to leave their nodes.
const foundAgain = 5 * time.Second

func (f *found) next() time.Time {
	if f.done || f.reading {
		return time.Time{}
	}
	return f.retryAt
}

// findBacks asks for the jobs when it is time.
func (e *Engine) findBacks() {
	f := &e.found
	if f.done || f.reading || f.retryAt.After(e.now) {
		return
	}
	if f.begun.IsZero() {
		f.begun = e.now
	}
	f.reading = true
	e.do(ReadBacks{})
}

func (e *Engine) backsRead(ev BacksRead) {
	f := &e.found
	f.reading = false
	if ev.Err != "" {
		e.note(Warn, nil, "", "looking for jobs that were given back failed: "+ev.Err)
		f.retryAt = e.now.Add(pause(f.tries))
		f.tries++
		return
	}
	leaves := false
	for _, j := range ev.Jobs {
		switch b := e.backOf(j.Job); {
		case b != nil: // it is seen to, but its record may not have taken what it was told
			b.times = max(b.times, j.Times)
			continue
		case j.Leaves:
			leaves = true
			e.givenBack[j.Job] = max(e.givenBack[j.Job], j.Times-1) // should its record take no more
			continue
		case f.held[j.Job]:
			continue
		case j.Rests:
			e.givenBack[j.Job] = max(e.givenBack[j.Job], j.Times)
		default:
			e.givenBack[j.Job] = max(e.givenBack[j.Job], j.Times-1) // jobHeld counts this time
			e.backs = append(e.backs, &back{
				job: j.Job, times: j.Times, rested: j.Rested, told: true, freed: true, freedAt: e.now, retryAt: e.now, until: e.now.Add(backMost),
			})
		}
		why := fmt.Sprintf("job %d was given back", j.Job)
		e.loses(j.Job, why)
		if g := e.gangs[j.Job]; g != nil && g.parted == "" { // its request is not finished: what comes up for it is idle
			g.parted = why
		}
	}
	f.tries, f.retryAt = 0, e.now.Add(foundAgain)
	if f.done = !leaves || e.now.Sub(f.begun) >= backMost; f.done {
		f.held = nil
	}
}
