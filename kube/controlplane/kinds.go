package controlplane

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds are those of the objects that a Loop carries out.
func Kinds() []string { return []string{"Controller", "Accounting", "RestApi", "LoginSet", "Token"} }

// kindNodeSet is no kind that is carried out: who carries out Controllers says of NodeSets which have none.
const kindNodeSet = "NodeSet"

// ParseKinds sees that there are such kinds; a name may be written in any case. None at all are all of them.
func ParseKinds(words []string) (kinds []string, err error) {
	for _, word := range words {
		i := slices.IndexFunc(Kinds(), func(kind string) bool { return strings.EqualFold(kind, word) })
		if i < 0 {
			return nil, fmt.Errorf("unknown kind %q: use some of %s", word, strings.Join(Kinds(), ", "))
		}
		kinds = append(kinds, Kinds()[i])
	}
	return kinds, nil
}

// carriesOut says that objects of the kind are this Loop's to carry out. It reads those of the others, which its own refer to.
func (l *Loop) carriesOut(kind string) bool {
	if kind == kindNodeSet {
		kind = "Controller"
	}
	return len(l.o.Kinds) == 0 || slices.Contains(l.o.Kinds, kind)
}
