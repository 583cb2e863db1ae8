package stack

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Versions are the Slurm versions there are images for, see hack/images.
func Versions() []string { return []string{"24.11", "26.05"} }

// Options says what to deploy. Namespace, SlurmVersion and NodeLines have no default.
type Options struct {
	// Namespace is made for the stack and must not exist yet.
	Namespace string
	// ClusterName is Slurm's; default: the namespace.
	ClusterName string
	// ClusterDomain is Kubernetes' DNS domain; default cluster.local.
	ClusterDomain string

	// SlurmVersion is one of Versions.
	SlurmVersion string
	// SlurmImage defaults to slurmtide/slurm:<SlurmVersion>.
	SlurmImage string
	// BridgeImage carries the bridge and the four programs; default slurmtide/slurmtide:dev.
	BridgeImage string

	// NodeLines are slurm.conf's NodeName= lines (NodeSet= lines, too), PartitionLines its PartitionName= lines.
	NodeLines      []string
	PartitionLines []string
	// GresLines is gres.conf; see FakeGPUs. GresTypes is set from it.
	GresLines []string
	// TopologyLines is topology.conf, which ExtraConf has to make use of (TopologyPlugin).
	TopologyLines []string
	// Gate makes start-gate the PrologSlurmctld.
	Gate bool
	// Prolog, when not empty, is a shell script that becomes a PrologSlurmctld, the way a site wraps start-gate for instance.
	// It is installed beside the programs, as prolog; with Scripts it is not.
	Prolog string
	// ExtraConf are further lines for slurm.conf. One that names a key which the template sets replaces that line.
	ExtraConf []string
	// SlurmtideConf is the text of slurmtide.conf; without it the programs' defaults hold.
	SlurmtideConf string

	// ResumeTimeout, SuspendTimeout and SuspendTime are slurm.conf's, in seconds; defaults 120, 40 and 15.
	ResumeTimeout, SuspendTimeout, SuspendTime int

	// StateInMemory keeps StateSaveLocation and spool in memory. slurmctld answers nobody while it saves its state, and the disk of
	// a machine that tests much at once may stall for half a minute.
	StateInMemory bool
	// SpoolSize, when not empty, puts the spool on a file system of that size ("8Mi") of its own, in memory, so that it can be filled.
	SpoolSize string

	// OpenSlurmrestd lets other pods reach slurmrestd, at slurmrestd.<Namespace>:6820.
	OpenSlurmrestd bool

	// Accounting puts slurmdbd and its database, MariaDBImage, beside slurmctld. They start first.
	Accounting bool
	// MariaDBImage defaults to slurmtide/mariadb:test.
	MariaDBImage string

	// BridgeArgs are further arguments for the bridge.
	BridgeArgs []string
	// TwoBridges adds a second one with a spool of its own, as beside a backup slurmctld. ActiveSpool tells which of
	// them the programs write to: a symbolic link, to the first one's until it is changed.
	TwoBridges bool
	// NoBridge leaves the bridge out, as on a site where it does not run; the programs are installed all the same.
	NoBridge bool
	// Scripts, when not nil, replace our programs and the bridge: shell scripts by the names resume, suspend, resume-fail
	// and start-gate. Names that are missing do nothing and succeed.
	Scripts map[string]string
}

func (o Options) withDefaults() Options {
	setDefault := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	setDefaultInt := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	setDefault(&o.ClusterName, o.Namespace)
	setDefault(&o.ClusterDomain, "cluster.local")
	setDefault(&o.SlurmImage, "slurmtide/slurm:"+o.SlurmVersion)
	setDefault(&o.BridgeImage, "slurmtide/slurmtide:dev")
	setDefault(&o.MariaDBImage, "slurmtide/mariadb:test")
	setDefaultInt(&o.ResumeTimeout, 120)
	setDefaultInt(&o.SuspendTimeout, 40)
	setDefaultInt(&o.SuspendTime, 15)
	if o.Scripts != nil {
		o.NoBridge = true
	}
	if o.TwoBridges {
		setDefault(&o.SlurmtideConf, "Spool="+ActiveSpool+"\n")
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("namespace %q: %s", o.Namespace, problems[0]))
	}
	if !slices.Contains(Versions(), o.SlurmVersion) {
		errs = append(errs, fmt.Errorf("unsupported Slurm version %q: there are images for %s", o.SlurmVersion, strings.Join(Versions(), " and ")))
	}
	if len(o.NodeLines) == 0 {
		errs = append(errs, errors.New("no NodeLines: give at least one NodeName= line for slurm.conf"))
	}
	if o.SpoolSize != "" {
		if _, err := resource.ParseQuantity(o.SpoolSize); err != nil {
			errs = append(errs, fmt.Errorf("spool size %q: %w", o.SpoolSize, err))
		}
	}
	for name := range o.Scripts {
		if !slices.Contains(programs, name) {
			errs = append(errs, fmt.Errorf("script %q: slurm.conf names only %s", name, strings.Join(programs, ", ")))
		}
	}
	return errors.Join(errs...)
}

// FakeGPUs is a line of gres.conf that gives the nodes GPUs without hardware; at most six each.
//
// Slurm drops GPUs that have no File ("Ignoring file-less GPU"), and such nodes register INVALID_REG with a count of 0. A File that is no
// device counts, but then jobs get no CUDA_VISIBLE_DEVICES. So harmless devices that every container has stand in.
func FakeGPUs(nodes, gpuType string, count int) (string, error) {
	devices := []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
	if count < 1 || count > len(devices) {
		return "", fmt.Errorf("%d fake GPUs a node: must be 1 to %d", count, len(devices))
	}
	return fmt.Sprintf("NodeName=%s Name=gpu Type=%s File=%s Flags=nvidia_gpu_env", nodes, gpuType, strings.Join(devices[:count], ",")), nil
}
