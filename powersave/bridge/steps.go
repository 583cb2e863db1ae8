package bridge

// Step names a moment in the bridge's work at which a test may kill it: built with the tag "faults" it dies at the step that
// the file die-at in its spool directory names. Released programs are built without that tag, and know nothing of it.
type Step string

// The steps. Calls have two: one before anything left the process, one when it is done and the engine does not know yet.
const (
	StepRequest    Step = "request read"
	StepCreate     Step = "before create"
	StepCreated    Step = "after create"
	StepPodSeen    Step = "pod seen"
	StepRead       Step = "before read"
	StepReadDone   Step = "after read"
	StepRegistered Step = "node registered"
	StepGate       Step = "before gate answer"
	StepMark       Step = "before mark"
	StepMarked     Step = "after mark"
	StepStatus     Step = "before status"
	StepStatusDone Step = "after status"
	StepDelete     Step = "before delete"
	StepDeleted    Step = "after delete"
	StepPodGone    Step = "pod gone"
	StepTell       Step = "before tell"
	StepTold       Step = "after tell"
	StepUpdate     Step = "before update"
	StepUpdated    Step = "after update"
	StepHold       Step = "before hold"
	StepHeld       Step = "after hold"
	StepTaint      Step = "before taint"
	StepTainted    Step = "after taint"
	StepAskRoom    Step = "before room is asked for"
	StepRoomAsked  Step = "after room is asked for"
	StepDropRoom   Step = "before room is dropped"
	StepRoomGone   Step = "after room is dropped"
	StepFinish     Step = "before finish"
	StepFinished   Step = "after finish"
)

// Steps returns all steps: the tests kill the bridge at each.
func Steps() []Step {
	return []Step{
		StepRequest, StepCreate, StepCreated, StepPodSeen, StepRead, StepReadDone, StepRegistered, StepGate, StepMark, StepMarked,
		StepStatus, StepStatusDone, StepDelete, StepDeleted, StepPodGone, StepTell, StepTold, StepUpdate, StepUpdated, StepHold, StepHeld,
		StepTaint, StepTainted, StepAskRoom, StepRoomAsked, StepDropRoom, StepRoomGone, StepFinish, StepFinished,
	}
}
