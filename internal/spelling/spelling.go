// Package spelling guesses what was meant by a name that does not exist.
package spelling

// Nearest returns the one of names that is nearest to given, "" when none is near.
func Nearest(given string, names []string) string {
	best, least := "", len(given)/3+2
	if len(given) <= 2 {
		return "" // everything short is near
	}
	for _, n := range names {
		if d := distance(given, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to insert, remove or replace on the way from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := []int{i + 1}
		for j := range len(b) {
			replace := row[j]
			if a[i] != b[j] {
				replace++
			}
			next = append(next, min(replace, row[j+1]+1, next[j]+1))
		}
		row = next
	}
	return row[len(b)]
}
