// Package message makes what Kubernetes' components write into events and conditions fit for people.
package message

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Max is how long a message for people gets, in bytes.
const Max = 400

// Sentence makes one line for people of what a component says, of at most Max bytes: without line breaks,
// transport wrappers and what follows from the rest.
func Sentence(message string) string {
	s := strings.Join(strings.Fields(message), " ")
	s = noise.ReplaceAllString(s, "")
	s = requirements.ReplaceAllString(s, " ($1)")
	s = strings.TrimRight(s, " .,;:")
	if len(s) <= Max {
		return s
	}
	// What was done stands first, the cause last.
	const gap = " ... "
	head, tail := s[:Max/3], s[len(s)-(Max-Max/3-len(gap)):]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "")
}

// LastWords are where a program that logs says why it ended: the last three of its errors, or, if it tells of none, its last two lines.
func LastWords(log string) string {
	var errs []string
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for _, line := range lines {
		for _, level := range []string{"fatal: ", "error: "} {
			if _, text, ok := strings.Cut(line, level); ok {
				if !slices.Contains(errs, level+text) {
					errs = append(errs, level+text)
				}
				break
			}
		}
	}
	if len(errs) > 3 {
		errs = errs[len(errs)-3:]
	}
	if errs == nil {
		errs = lines[max(0, len(lines)-2):] // the last one of sshd only counts the errors
	}
	return strings.Join(errs, "; ")
}

var (
	// The scheduler repeats its counts for preemption, or says that it found nothing to preempt; gRPC says
	// its code; Karpenter lists what DaemonSets take; the event recorder says that it joined events.
	noise = regexp.MustCompile(`[,.]? (no new claims to deallocate, )?preemption: .*$|\. not found$|rpc error: code = \w+ desc = |daemonset overhead=\{[^}]*\}, |^\(combined from similar events\): `)
	// Karpenter lists every requirement, and then in brackets which one cannot be met.
	requirements = regexp.MustCompile(` and requirements .*? \(([^()]*)\)`)
)

// Sorted puts in order a list such as "2 Insufficient cpu, 3 node(s) had taint {a: b}, that the pod didn't tolerate", which the
// autoscaler writes in another order each time.
func Sorted(list string) string {
	var parts []string
	for item := range strings.SplitSeq(list, ", ") {
		number, _, _ := strings.Cut(item, " ")
		if _, err := strconv.Atoi(number); err != nil && len(parts) > 0 {
			parts[len(parts)-1] += ", " + item
			continue
		}
		parts = append(parts, item)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
