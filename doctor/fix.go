package doctor

import (
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/slurmtide/slurmtide/slurmconf"
)

// edit is a change of one file.
type edit struct {
	file string // its name; empty: slurm.conf itself
	do   func(f *slurmconf.File) error
}

// set gives a key its value, where it stands.
func (f *Facts) set(key, value string) edit {
	s, _ := f.Cluster.Get(key)
	return edit{s.Position.File, func(file *slurmconf.File) error { return file.Set(key, value) }}
}

// addWords adds words to a list, or replaces those of the same name.
func (f *Facts) addWords(key string, words ...string) edit {
	s, _ := f.Cluster.Get(key)
	return edit{s.Position.File, func(file *slurmconf.File) error { return file.AddWords(key, words...) }}
}

// removeWords takes words out of a list.
func (f *Facts) removeWords(key string, words ...string) edit {
	s, _ := f.Cluster.Get(key)
	return edit{s.Position.File, func(file *slurmconf.File) error { return file.RemoveWords(key, words...) }}
}

// remove takes a key away.
func (f *Facts) remove(key string) edit {
	s, _ := f.Cluster.Get(key)
	return edit{s.Position.File, func(file *slurmconf.File) error { file.Remove(key); return nil }}
}

// add puts a line at the end of slurm.conf.
func add(text string) edit {
	return edit{"", func(file *slurmconf.File) error { return file.Add(text) }}
}

// Fixed is the text of each file that the findings' edits change, by name. Findings without an edit are left out.
func Fixed(f Facts, findings []Finding) (map[string]string, error) {
	changed := map[string]*slurmconf.File{}
	for _, finding := range findings {
		for _, e := range finding.edits {
			name := e.file
			if name == "" {
				name = f.main()
			}
			if changed[name] == nil {
				file, err := copyOf(f, name)
				if err != nil {
					return nil, fmt.Errorf("mending %s: %w", finding.Rule, err)
				}
				changed[name] = file
			}
			if err := e.do(changed[name]); err != nil {
				return nil, fmt.Errorf("mending %s: %w", finding.Rule, err)
			}
		}
	}
	texts := map[string]string{}
	for name, file := range changed {
		texts[name] = file.String()
	}
	return texts, nil
}

func copyOf(f Facts, name string) (*slurmconf.File, error) {
	for _, file := range f.Slurm.Files() {
		if file.Name() == name {
			return slurmconf.ParseFile(name, []byte(file.String()))
		}
	}
	return nil, fmt.Errorf("%s was not read", name)
}

// Diff is what Fixed would change, as a unified diff for `patch -p1`: of absolute names in the directory /.
func Diff(f Facts, findings []Finding) (string, error) {
	texts, err := Fixed(f, findings)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, file := range f.Slurm.Files() {
		text, ok := texts[file.Name()]
		if !ok {
			continue
		}
		delete(texts, file.Name()) // a file that is included twice
		name := strings.TrimPrefix(file.Name(), "/")
		patch := string(diff.Diff("a/"+name, []byte(file.String()), "b/"+name, []byte(text)))
		_, patch, _ = strings.Cut(patch, "\n") // "diff old new"
		b.WriteString(patch)
	}
	return b.String(), nil
}
