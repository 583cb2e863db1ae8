package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
)

// GresGPUs counts the GPUs in a Gres= list of a NodeName line: "gpu:2", "gpu:h100:2", "gpu" (one),
// several separated by commas. Other resources do not count.
func GresGPUs(gres string) (int64, error) {
	var total int64
	for _, item := range splitGres(gres) {
		plain, _, _ := strings.Cut(item, "(") // gpu:2(S:0-1)
		fields := strings.Split(plain, ":")
		if fields[0] != "gpu" {
			continue
		}
		last := fields[len(fields)-1]
		count, err := strconv.ParseUint(last, 10, 16)
		switch {
		case len(fields) > 3:
			return 0, fmt.Errorf("%q has too many colons: write gpu:<count> or gpu:<type>:<count>", item)
		case err == nil:
			total += int64(count)
		case len(fields) == 1, len(fields) == 2 && isGresType(last):
			total++ // no count means one
		default:
			return 0, fmt.Errorf("%q: the count must be a number, as in gpu:2 or gpu:h100:2", item)
		}
	}
	return total, nil
}

func isGresType(s string) bool {
	return s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z')
}

// splitGres splits at commas outside parentheses.
func splitGres(gres string) []string {
	depth := 0
	return strings.FieldsFunc(gres, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth <= 0
	})
}
