package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// allowances are the reasons why rights stay that a suite does not use, by "role: right".
type allowances map[string]string

// parseAllowed reads lines "suite role: verb resource # reason", and gives them by suite.
func parseAllowed(text string) (map[string]allowances, error) {
	all := map[string]allowances{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, _ := strings.Cut(line, "#")
		suite, on, _ := strings.Cut(strings.TrimSpace(what), " ")
		reason = strings.TrimSpace(reason)
		switch {
		case suites[suite] == nil:
			return nil, fmt.Errorf("allowed.txt:%d: there is no suite %q: write suite role: verb resource # reason", i+1, suite)
		case reason == "":
			return nil, fmt.Errorf("allowed.txt:%d: %s: say behind a # why it stays", i+1, on)
		case all[suite][on] != "":
			return nil, fmt.Errorf("allowed.txt:%d: %s is there twice: remove one", i+1, on)
		}
		if all[suite] == nil {
			all[suite] = allowances{}
		}
		all[suite][on] = reason
	}
	return all, nil
}

// compare says what is wrong, a line each.
func compare(granted, used rights, allowed allowances) (found []string) {
	for _, role := range slices.Sorted(maps.Keys(granted)) {
		if len(used[role]) == 0 {
			found = append(found, role+": nothing was done with it: is this the audit log of the whole suite?")
			continue
		}
		for _, right := range slices.Sorted(maps.Keys(granted[role])) {
			if on := role + ": " + right; !used[role][right] && allowed[on] == "" {
				found = append(found, on+": never used: remove it where the role is made, or say in hack/rights/allowed.txt who needs it")
			}
		}
	}
	for _, on := range slices.Sorted(maps.Keys(allowed)) {
		role, right, _ := strings.Cut(on, ": ")
		switch {
		case !granted[role][right]:
			found = append(found, on+": not given: remove it from hack/rights/allowed.txt")
		case used[role][right]:
			found = append(found, on+": used after all: remove it from hack/rights/allowed.txt")
		}
	}
	return found
}
