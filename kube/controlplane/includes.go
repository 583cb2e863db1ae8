package controlplane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// refuse finds a key that the objects decide on, or one of those in more.
func refuse(f *slurmconf.File, more []string) error {
	for _, s := range f.Settings() {
		if why, ok := reserved[strings.ToLower(s.Key)]; ok {
			return slurmconf.Problem{Position: s.Position, Text: s.Key + " cannot be set here: " + why, Remedy: "remove it"}
		}
		if slices.ContainsFunc(more, func(key string) bool { return strings.EqualFold(key, s.Key) }) {
			return slurmconf.Problem{Position: s.Position, Text: s.Key + " of an included file would take the place of the one that Slurmtide needs",
				Remedy: "write it into " + extraConf + ", where its words are added"}
		}
	}
	return nil
}

// checkIncludes sees that what a file includes is there, and has nothing that extraConf may not have. files are those that lie beside slurm.conf, chain the names
// of those that are being read.
func checkIncludes(f *slurmconf.File, cluster string, files map[string]string, chain []string) error {
	for _, s := range f.Includes() {
		fail := func(text, remedy string) error {
			return slurmconf.Problem{Position: s.ValuePosition, Text: "Include " + s.Value + ": " + text, Remedy: remedy}
		}
		if strings.Contains(s.Value, "/") { // a slurmd without it does not start
			return fail("nodes have no such file", "put it into a ConfigMap of spec.configFileRefs, and write its name alone: slurmctld hands it out")
		}
		name := included(s, cluster)
		text, there := files[name]
		switch {
		case !there:
			return fail("no ConfigMap of spec.configFileRefs has it", "put it into one")
		case slices.Contains(chain, name):
			return fail(fmt.Sprintf("it includes itself (%s)", strings.Join(append(chain, name), " > ")), "remove the Include")
		case len(chain) >= slurmconf.MaxIncludeDepth:
			return fail(fmt.Sprintf("it is more than %d Includes deep", slurmconf.MaxIncludeDepth), "include it from a file further up")
		}
		more, err := slurmconf.ParseFile(name, []byte(text))
		if err == nil {
			err = refuse(more, lists)
		}
		if err == nil {
			err = checkIncludes(more, cluster, files, append(slices.Clone(chain), name))
		}
		if err != nil && chain == nil {
			err = fmt.Errorf("spec.configFileRefs: %w", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// included is the name of the file that an Include asks for.
func included(s slurmconf.Setting, cluster string) string {
	return strings.ReplaceAll(s.Value, "%c", strings.ToLower(cluster))
}

// eachLine visits the lines of a file and of what it includes, each file once, as far as they can be read.
func eachLine(f *slurmconf.File, cluster string, files map[string]string, visit func(slurmconf.Setting)) {
	seen := map[string]bool{}
	for all := []*slurmconf.File{f}; len(all) > 0; all = all[1:] {
		for _, s := range all[0].Settings() {
			visit(s)
		}
		for _, s := range all[0].Includes() {
			if name := included(s, cluster); !seen[name] {
				seen[name] = true
				all = append(all, conf(files[name]))
			}
		}
	}
}
