package powersave

import "time"

// raiseWait is how long a floor that was raised waits before nodes are powered up for it. Who raises it may do so because of a job that has
// just been submitted (KEDA), and slurmctld gives that job nodes, and powers them up, within the same second or two: it tries
// batch jobs when they arrive, and its power saving looks every second. These nodes count. Powering up others at once would wake some
// that nobody needs.
const raiseWait = 2 * time.Second

const waitsText = "waiting 2 s, since Slurm may be about to power nodes up itself"

// raised is how far a floor that was raised may be acted on.
type raised struct {
	done  int
	steps []raise // that wait, each higher and later than the one before
}

type raise struct {
	want int
	at   time.Time // when it has waited
	read int       // reads asked for before: only a later one can know the job
}

// to takes in what the floor is now, with the number of reads asked for so far; true: it was raised, and waits.
func (r *raised) to(want int, now time.Time, read int) bool {
	if want <= r.done {
		r.done, r.steps = want, nil
		return false
	}
	for i := range r.steps {
		if r.steps[i].want >= want {
			r.steps[i].want, r.steps = want, r.steps[:i+1]
			return false
		}
	}
	r.steps = append(r.steps, raise{want, now.Add(raiseWait), read})
	return true
}

// due is when the next step has waited; zero: none waits.
func (r *raised) due() time.Time {
	if len(r.steps) == 0 {
		return time.Time{}
	}
	return r.steps[0].at
}

// by is how much of the floor may be acted on, with a complete read that is to hand now.
func (r *raised) by(now time.Time, read int) int {
	for len(r.steps) > 0 && !r.steps[0].at.After(now) && r.steps[0].read < read {
		r.done, r.steps = r.steps[0].want, r.steps[1:]
	}
	return r.done
}
