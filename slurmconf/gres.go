package slurmconf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Gres is an amount of one generic resource: "gpu:h100:2" is {gpu h100 2}.
type Gres struct {
	Name  string
	Type  string // empty: any
	Count int64
}

// String writes it as in a Gres= list.
func (g Gres) String() string {
	if g.Type == "" {
		return fmt.Sprintf("%s:%d", g.Name, g.Count)
	}
	return fmt.Sprintf("%s:%s:%d", g.Name, g.Type, g.Count)
}

// ParseGres reads a Gres= list of a NodeName line, or what slurmctld shows as a node's gres and gres_used:
// "gpu:2", "gpu:h100:2(S:0-1)", "gpu" (one), "tmp:no_consume:4G", several separated by commas. K, M, G, T and P
// multiply by 1024 each. What stands in parentheses is left out; a type "(null)" is none. Source: gres.c _get_gres_cnt, _node_gres_used.
func ParseGres(list string) ([]Gres, error) {
	if list == "(null)" || list == "N/A" {
		return nil, nil
	}
	var all []Gres
	for _, item := range splitGres(list) {
		g, err := parseGres(item)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// ParseTRESGres reads the generic resources of a TRES list, as a job asks for with --gres, --gpus and
// --gpus-per-task: "gres/gpu:h100:2", "gres:gpu:2", "cpu=4,gres/gpu=1". What is not gres is left out.
// Source: gres.c _get_next_job_gres, slurm_get_next_tres.
func ParseTRESGres(list string) ([]Gres, error) {
	var all []Gres
	for _, item := range splitGres(list) {
		rest, ok := strings.CutPrefix(item, "gres")
		if !ok || rest == "" || rest[0] != '/' && rest[0] != ':' {
			continue
		}
		g, err := parseGres(rest[1:])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		all = append(all, g)
	}
	return all, nil
}

// GresGPUs counts the GPUs in a Gres= list of a NodeName line. Other resources do not count, and are not looked at.
func GresGPUs(gres string) (int64, error) {
	var total int64
	for _, item := range splitGres(gres) {
		if name, _, _ := strings.Cut(item, ":"); name != "gpu" && !strings.HasPrefix(item, "gpu(") {
			continue
		}
		g, err := parseGres(item)
		if err != nil {
			return 0, err
		}
		if g.Count > math.MaxUint16 {
			return 0, fmt.Errorf("%q: a node cannot have more than %d GPUs", item, math.MaxUint16)
		}
		total += g.Count
	}
	return total, nil
}

// parseGres reads one item of a list.
func parseGres(item string) (Gres, error) {
	plain, _, _ := strings.Cut(strings.Replace(item, ":(null):", ":", 1), "(") // gpu:2(S:0-1), gpu:(null):1(IDX:0)
	plain, amount, given := strings.Cut(plain, "=")
	fields := strings.Split(strings.Replace(plain, ":no_consume", "", 1), ":")
	g := Gres{Name: fields[0], Count: 1} // no count means one
	if !given && len(fields) > 1 {
		if last := fields[len(fields)-1]; len(fields) > 2 || !isGresType(last) {
			amount, given = last, true
			fields = fields[:len(fields)-1]
		}
	}
	switch {
	case g.Name == "":
		return Gres{}, fmt.Errorf("%q has no name: write gpu:2 or gpu:h100:2", item)
	case len(fields) > 2:
		return Gres{}, fmt.Errorf("%q has too many colons: write %[2]s:<count> or %[2]s:<type>:<count>", item, g.Name)
	case len(fields) == 2 && fields[1] == "":
		return Gres{}, fmt.Errorf("%q has an empty type: write %[2]s:<count> or %[2]s:<type>:<count>", item, g.Name)
	case len(fields) == 2:
		g.Type = fields[1]
	}
	if given {
		count, ok := gresCount(amount)
		if !ok {
			return Gres{}, fmt.Errorf("%q: the count must be a number, as in gpu:2 or gpu:h100:2", item)
		}
		g.Count = count
	}
	return g, nil
}

// gresCount reads a number with one of Slurm's suffixes.
func gresCount(s string) (int64, bool) {
	shift := 0
	if s != "" {
		if at := strings.IndexByte("KMGTP", s[len(s)-1]&^0x20); at >= 0 {
			shift, s = 10*(at+1), s[:len(s)-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, false
	}
	return int64(n) << shift, true
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
