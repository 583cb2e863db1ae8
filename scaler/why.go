package scaler

// Why is the class of why a pending job counts as demand for nodes, or does not.
type Why string

// Classes that count.
const (
	// WhyCapacity: nodes must be powered up for it.
	WhyCapacity Why = "capacity"
	// WhyRoom: there is room on nodes that are up, or boot; Slurm has not come to it yet.
	WhyRoom Why = "room"
)

// Classes that do not count.
const (
	// WhyFull: every node that could run it is in use or out of order. Powering up cannot help.
	WhyFull Why = "full"
	// WhyImpossible: no NodeSet can ever run it. JobDemand.Detail has the nearest miss.
	WhyImpossible Why = "impossible"
	// WhyElsewhere: it can run on nodes outside all NodeSets only.
	WhyElsewhere   Why = "elsewhere"
	WhyHeld        Why = "held"        // by its user, an administrator or Slurm; somebody must release it
	WhyDependency  Why = "dependency"  // on other jobs
	WhyBeginTime   Why = "begin_time"  // its begin time is yet to come
	WhyArrayLimit  Why = "array_limit" // as many tasks of its array run as it allows (--array=0-99%5)
	WhyLicense     Why = "license"
	WhyLimit       Why = "limit"       // of its association, account or QOS
	WhyReservation Why = "reservation" // its own has not begun, or is gone, or those of others hold the nodes
	WhyPartition   Why = "partition"   // the partition is down, or does not admit it
	WhyPowerLimit  Why = "power_limit" // max_powered_nodes of slurm.conf
	WhyOther       Why = "other"       // burst buffers, MPI ports, a lock: nothing a node could help with
	WhyCleaning    Why = "cleaning"    // it was requeued, and still leaves its old nodes
	// WhyUnknown: the reason, or the request, is one this version does not know.
	WhyUnknown Why = "unknown"
)

// Counts reports whether the job is demand for nodes.
func (w Why) Counts() bool { return w == WhyCapacity || w == WhyRoom }

// Says goes on after a number of jobs.
func (w Why) Says() string {
	if says, ok := whySays[w]; ok {
		return says
	}
	return string(w)
}

var whySays = map[Why]string{
	WhyCapacity:    "need nodes that are off",
	WhyRoom:        "have room and start soon",
	WhyFull:        "wait for nodes in use",
	WhyImpossible:  "can run on no NodeSet",
	WhyElsewhere:   "run outside the NodeSets",
	WhyHeld:        "are held",
	WhyDependency:  "depend on others",
	WhyBeginTime:   "begin later",
	WhyArrayLimit:  "wait for tasks of their array",
	WhyLicense:     "wait for licenses",
	WhyLimit:       "are at a limit of their account or QOS",
	WhyReservation: "wait for a reservation",
	WhyPartition:   "are kept out by their partition",
	WhyPowerLimit:  "are kept back by max_powered_nodes",
	WhyOther:       "wait for something else",
	WhyCleaning:    "still leave their old nodes",
	WhyUnknown:     "wait for what this version does not know",
}
