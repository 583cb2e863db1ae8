package pods

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slurmtide/slurmtide/kube/api/v1alpha1"
	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/slurmconf"
)

// Validate checks the NodeSets of one cluster, each for itself and against the others, and returns
// what the engine works with, ordered by name. A NodeSet that cannot be used has its Problem set to
// one sentence that says what is wrong and what to do.
//
// Of two NodeSets that name the same node the older one (creationTimestamp, then name) keeps all
// its nodes and the younger one is refused as a whole: half a NodeSet would be a riddle. In the
// result every node stands in one NodeSet at most.
//
// Most of it the CRD's rules refuse already. It is repeated here for objects that were
// stored before a rule existed and for what CEL cannot express.
func Validate(sets []*v1alpha1.NodeSet) []powersave.NodeSet {
	result := make([]powersave.NodeSet, 0, len(sets))
	owner := map[string]string{}
	for _, ns := range byAge(sets) {
		checked := engineNodeSet(ns)
		nodes, err := slurmconf.ParseHostlist(ns.Spec.NodeNames)
		if err != nil {
			err = fmt.Errorf("spec.nodeNames: %w", err)
		} else {
			taken, problem := claim(owner, ns.Name, nodes)
			checked.Nodes = nodes.Minus(taken)
			err = errors.Join(problem, checkSpec(&ns.Spec))
		}
		if ns.DeletionTimestamp != nil {
			err = errors.Join(errors.New("it is being deleted"), err)
		}
		if err != nil {
			checked.Problem = fmt.Sprintf("NodeSet %s cannot be used: %s", ns.Name, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		result = append(result, checked)
	}
	slices.SortFunc(result, func(a, b powersave.NodeSet) int { return cmp.Compare(a.Name, b.Name) })
	return result
}

func byAge(sets []*v1alpha1.NodeSet) []*v1alpha1.NodeSet {
	return slices.SortedFunc(slices.Values(sets), func(a, b *v1alpha1.NodeSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// OwnNames are the nodes of each NodeSet, by its name, that no older one of them has, each once: what slurmctld can be told of together. NodeSets whose
// nodeNames are no hostlist are not among them.
func OwnNames(sets []*v1alpha1.NodeSet) map[string]slurmconf.Hostlist {
	own, taken := map[string]slurmconf.Hostlist{}, map[string]bool{}
	for _, ns := range byAge(sets) {
		nodes, err := slurmconf.ParseHostlist(ns.Spec.NodeNames)
		if err != nil {
			continue
		}
		var names []string
		for name := range nodes.All() {
			if !taken[name] {
				taken[name] = true
				names = append(names, name)
			}
		}
		if len(names) < nodes.Len() {
			nodes = slurmconf.NewHostlist(names...)
		}
		own[ns.Name] = nodes
	}
	return own
}

// claim enters the nodes of one NodeSet into owner and returns those that another one has already.
func claim(owner map[string]string, set string, nodes slurmconf.Hostlist) (taken slurmconf.Hostlist, problem error) {
	var others, twice []string
	var other string // the first is enough to read
	var bad error
	for name := range nodes.All() {
		if bad == nil {
			bad = checkNodeName(name)
		}
		switch first, ok := owner[name]; {
		case !ok:
			owner[name] = set
		case first == set:
			twice = append(twice, name)
		default:
			other = cmp.Or(other, first)
			others = append(others, name)
		}
	}
	var overlap, repeated error
	taken = slurmconf.NewHostlist(others...)
	if len(others) > 0 {
		overlap = fmt.Errorf("spec.nodeNames: %s stand already in the older NodeSet %s: remove them from one of the two", shorten(taken.String(), 200), other)
	}
	if len(twice) > 0 {
		repeated = fmt.Errorf("spec.nodeNames: %s named more than once", shorten(slurmconf.CompressHostlist(twice), 200))
	}
	return taken, errors.Join(bad, overlap, repeated)
}

// checkNodeName reports a name that a pod and its hostname cannot have: both need a DNS label.
func checkNodeName(name string) error {
	valid := len(name) > 0 && len(name) <= 63 && name[0] != '-' && name[len(name)-1] != '-'
	for i := 0; valid && i < len(name); i++ {
		c := name[i]
		valid = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-'
	}
	if valid {
		return nil
	}
	return fmt.Errorf("spec.nodeNames: %q cannot be the name of a pod: use lower-case letters, digits and \"-\", at most 63 characters, and no \"-\" at either end", name)
}

// checkSpec reports everything that is wrong with a spec on its own, apart from nodeNames.
func checkSpec(spec *v1alpha1.NodeSetSpec) error {
	return errors.Join(checkSupported(spec), checkShape(&spec.Shape), checkTemplate(spec), checkBoot(spec), checkEachHost(spec), checkWindows(spec), checkUpdate(spec), checkClaims(spec), checkSSH(spec))
}

func checkSupported(spec *v1alpha1.NodeSetSpec) error {
	if spec.Mode == v1alpha1.ModeDynamic {
		return checkDynamic(spec)
	}
	var unsupported []error
	for _, field := range []struct {
		path string
		set  bool
	}{
		{"spec.suspend", spec.Suspend != nil},
		{"spec.partitions", spec.Partitions != nil},
	} {
		if field.set {
			unsupported = append(unsupported, fmt.Errorf("%s needs mode Dynamic: remove it, and say it in slurm.conf", field.path))
		}
	}
	return errors.Join(unsupported...)
}

// plainWord is what needs no quotes in a NodeName line.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

func checkShape(shape *v1alpha1.Shape) error {
	if shape.CPUs < 1 {
		return fmt.Errorf("spec.shape.cpus is %d: must be 1 or more", shape.CPUs)
	}
	if shape.RealMemory < 1 {
		return fmt.Errorf("spec.shape.realMemory is %d: must be 1 MiB or more", shape.RealMemory)
	}
	for _, f := range shape.Features {
		if !plainWord.MatchString(f) {
			return fmt.Errorf("spec.shape.features: %q: use letters, digits, \"_\", \".\", \":\" and \"-\"", f)
		}
	}
	if strings.ContainsAny(shape.Gres, " \t\n\"'#") {
		return fmt.Errorf("spec.shape.gres is %q: remove blanks and quotes", shape.Gres)
	}
	if shape.Sockets == nil && shape.CoresPerSocket == nil && shape.ThreadsPerCore == nil {
		return nil
	}
	if shape.Sockets == nil || shape.CoresPerSocket == nil || shape.ThreadsPerCore == nil {
		return errors.New("spec.shape: give sockets, coresPerSocket and threadsPerCore together or none of them")
	}
	s, c, t := int64(*shape.Sockets), int64(*shape.CoresPerSocket), int64(*shape.ThreadsPerCore)
	if s*c*t != int64(shape.CPUs) {
		return fmt.Errorf("spec.shape: sockets * coresPerSocket * threadsPerCore is %d * %d * %d = %d, but cpus is %d", s, c, t, s*c*t, shape.CPUs)
	}
	return nil
}

func checkTemplate(spec *v1alpha1.NodeSetSpec) error {
	pod := &spec.Template.Spec
	slurmd := slurmdContainer(pod)
	if slurmd == nil {
		return fmt.Errorf("spec.template.spec.containers must have a container named %s", v1alpha1.ContainerSlurmd)
	}
	var problems []error
	if slurmd.Image == "" {
		problems = append(problems, errors.New("spec.template: the container slurmd needs an image"))
	}
	if pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyNever {
		problems = append(problems, fmt.Errorf("spec.template.spec.restartPolicy is %s: must be Never or absent, because a restarted slurmd looks to slurmctld like a rebooted node", pod.RestartPolicy))
	}
	if p := slurmd.RestartPolicy; p != nil && *p != corev1.ContainerRestartPolicyNever {
		problems = append(problems, fmt.Errorf("spec.template: the restartPolicy of container slurmd is %s: must be Never or absent, because a restarted slurmd looks to slurmctld like a rebooted node", *p))
	}
	if pod.AutomountServiceAccountToken != nil && *pod.AutomountServiceAccountToken {
		problems = append(problems, errors.New("spec.template.spec.automountServiceAccountToken must be false or absent: every job in the pod could use the token"))
	}
	if arg := reservedArg(slurmd.Args); arg != "" {
		problems = append(problems, fmt.Errorf("spec.template: remove %q from the args of container slurmd: Slurmtide sets it; args may only add options", arg))
	}
	problems = append(problems, checkResources(&slurmd.Resources, &spec.Shape))
	return errors.Join(problems...)
}
