package scaler

import (
	"fmt"
	"strings"
)

// ParseSelect reads SelectTypeParameters as it stands in slurm.conf: "CR_CPU_Memory,CR_LLN". An empty text is the default. Words
// that do not change how much fits on a node are left aside, and others are an error, for a typing error would make demand
// wrong without a word (read_config.c _parse_select_type_param).
func ParseSelect(parameters string) (Select, error) {
	s := Select{}
	unit := ""
	for word := range strings.SplitSeq(parameters, ",") {
		switch w := strings.ToUpper(strings.TrimSpace(word)); w {
		case "", "NONE", "CR_LLN", "CR_PACK_NODES", "CR_NO_DIST_TOPO_BLOCK", "CR_CORE_DEFAULT_DIST_BLOCK",
			"LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ", "ENFORCE_BINDING_GRES", "ONE_TASK_PER_SHARING_GRES":
		case "CR_ONE_TASK_PER_CORE":
			s.OneTaskPerCore = true
		case "CR_CORE", "CR_CPU", "CR_SOCKET", "CR_CORE_MEMORY", "CR_CPU_MEMORY", "CR_SOCKET_MEMORY":
			if unit != "" {
				return Select{}, fmt.Errorf("SelectTypeParameters %q: %s and %s exclude each other", parameters, unit, w)
			}
			unit = w
			kind, memory := strings.CutSuffix(w, "_MEMORY")
			s.NoMemory, s.CPUs, s.Sockets = !memory, kind == "CR_CPU", kind == "CR_SOCKET"
		default:
			return Select{}, fmt.Errorf("SelectTypeParameters %q: %q is none that slurmctld knows: give what `scontrol show config` shows", parameters, word)
		}
	}
	return s, nil
}
