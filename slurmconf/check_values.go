package slurmconf

import (
	"slices"
	"strings"
)

// removed are keys that Slurm's parser still has, to say what became of them. Source: _validate_and_set_defaults.
func removed(s Setting) (remedy string, ok bool) {
	switch strings.ToLower(s.Key) {
	case "accountingstorageloc":
		return "remove it", true
	case "accountingstorejobcomment":
		return "write AccountingStoreFlags=job_comment", true
	case "sallocdefaultcommand":
		return "write LaunchParameters=use_interactive_step", true
	case "fastschedule":
		return "remove it, or write SlurmdParameters=config_overrides for what FastSchedule=2 was", s.Value != "1"
	}
	return "", false
}

// selectWords are what SelectTypeParameters may have: one of the first seven at most. Source: _parse_select_type_param.
var selectWords = []string{
	"CR_SOCKET", "CR_SOCKET_MEMORY", "CR_CORE", "CR_CORE_MEMORY", "CR_MEMORY", "CR_CPU", "CR_CPU_MEMORY",
	"CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_LLN", "CR_PACK_NODES", "LL_SHARED_GRES", "MULTIPLE_SHARING_GRES_PJ",
	"ENFORCE_BINDING_GRES", "ONE_TASK_PER_SHARING_GRES",
	"CR_NO_DIST_TOPO_BLOCK", // 26.05
}

// slurmValue checks values of slurm.conf that have words of their own.
func (k *checker) slurmValue(s Setting) {
	if remedy, ok := removed(s); ok {
		k.fail(s.Position, remedy, "%s has been removed from Slurm", s.Key)
		return
	}
	if !strings.EqualFold(s.Key, "SelectTypeParameters") {
		return
	}
	units := 0
	var perCPU, perCore bool
	for _, word := range strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' }) {
		word = strings.ToUpper(word)
		i := slices.Index(selectWords, word)
		switch {
		case i < 0:
			k.fail(s.ValuePosition, "Slurm has "+strings.Join(selectWords, ", "), "SelectTypeParameters: %s is no word of it", quoteShort(word))
			return
		case i < 7:
			units++
		case word == "CR_NO_DIST_TOPO_BLOCK" && !oldest.before(k.version):
			k.fail(s.ValuePosition, "remove it", "SelectTypeParameters: Slurm %s does not know %s yet", k.version, word)
		}
		perCPU = perCPU || strings.HasPrefix(word, "CR_CPU")
		perCore = perCore || word == "CR_ONE_TASK_PER_CORE"
	}
	if units > 1 {
		k.fail(s.ValuePosition, "leave one of them", "SelectTypeParameters=%s has more than one unit", s.Value)
	}
	if perCPU && perCore {
		k.fail(s.ValuePosition, "write CR_CORE instead", "SelectTypeParameters: CR_ONE_TASK_PER_CORE does not go with CR_CPU")
	}
}

// partition checks fields with words of their own. Source: _parse_partitionname.
func (k *checker) partition(s Setting) {
	if f, ok := s.Field("State"); ok && !hasAnyPrefix(f.Value, "DOWN", "UP", "DRAIN", "INACTIVE") {
		k.fail(f.ValuePosition, "write UP, DOWN, DRAIN or INACTIVE", "State=%s", quoteShort(f.Value))
	}
	if f, ok := s.Field("SelectTypeParameters"); ok && !hasAnyPrefix(f.Value, "CR_Core", "CR_Socket") {
		k.fail(f.ValuePosition, "write CR_Core, CR_Core_Memory, CR_Socket or CR_Socket_Memory", "a partition's SelectTypeParameters=%s", quoteShort(f.Value))
	}
}

// powerAction checks what slurmctld wants of one. Source: _parse_power_action, power_action_valid_prog.
func (k *checker) powerAction(s Setting) {
	const where = "add Location=slurmctld, or Location=slurmd"
	location, ok := s.Field("Location")
	if !ok || location.Value == "" {
		k.fail(s.Position, where, "PowerAction %s has no Location, and slurmctld does not start with it", quoteShort(s.Value))
		return
	}
	if !strings.EqualFold(location.Value, "slurmctld") && !strings.EqualFold(location.Value, "slurmd") {
		k.fail(location.ValuePosition, "write slurmctld or slurmd", "Location=%s", quoteShort(location.Value))
		return
	}
	program, _ := s.Field("Program")
	switch words := strings.Fields(program.Value); {
	case len(words) == 0:
		k.fail(s.Position, "add Program=<path>", "PowerAction %s has no Program, and slurmctld does not start with it", quoteShort(s.Value))
	case strings.EqualFold(location.Value, "slurmctld") && !strings.HasPrefix(words[0], "/"):
		k.fail(program.ValuePosition, "write an absolute path", "slurmctld does not start with Program=%s, which is no absolute path", quoteShort(words[0]))
	}
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return len(s) >= len(p) && strings.EqualFold(s[:len(p)], p) })
}
