package powersave

import "strings"

// mayWrite says that a node's reason is empty, ours, or tells only that an earlier boot took too long; and that slurmctld has added nothing
// to it that people are to look at.
func mayWrite(reason string) bool {
	said, added, more := strings.Cut(reason, addedAfter)
	return (said == "" || strings.HasPrefix(said, ReasonPrefix) || strings.HasPrefix(said, timedOut)) && (!more || ofBoots(added))
}

// tookTooLong says that slurmctld has given a boot up at ResumeTimeout, and nobody else has spoken.
func tookTooLong(reason string) bool { return mayWrite(reason) && strings.Contains(reason, timedOut) }

// addedAfter stands before what slurmctld adds to the reason that a node has (node_mgr.c set_node_reason).
const addedAfter = " : "

// ofBoots says that slurmctld has added only what is ours to see to: that a boot took too long, or that the node does not answer.
func ofBoots(added string) bool {
	for said := range strings.SplitSeq(added, addedAfter) {
		if said != notResponding && said != timedOut {
			return false
		}
	}
	return true
}

// undivided makes one reason of a text: nothing in it is taken for what slurmctld has added.
func undivided(text string) string { return strings.ReplaceAll(text, addedAfter, ": ") }
