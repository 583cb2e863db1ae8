package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/slurmtide/slurmtide/scaler"
)

// Explain says in words why a job counts as demand, or does not; false if Slurm lists none of that number. An array has
// the number of its pending rest, and a task that has begun one of its own.
func (f Figures) Explain(id uint32) (string, bool) {
	if j, ok := f.Report.Job(id); ok {
		return j.Explain(), true
	}
	for i := range f.Snapshot.Jobs {
		j := &f.Snapshot.Jobs[i]
		if j.ID != id {
			continue
		}
		switch j.State {
		case scaler.JobLeaving:
			return fmt.Sprintf("job %d has ended, and leaves %s", id, j.Nodes), true
		default:
			return fmt.Sprintf("job %d runs on %s", id, j.Nodes), true
		}
	}
	return "", false
}

// Latester has the newest figures of a cluster: a Watcher.
type Latester interface{ Latest() (Figures, error) }

// Explanation is what is said of a job in a cluster.
type Explanation struct {
	Cluster string `json:"cluster"`
	Job     uint32 `json:"job"`
	Text    string `json:"text"`
}

// ExplainJobs answers GET /explain/job/{id}?cluster=NAME in plain text, with &output=json as a list of Explanations: 404 if no cluster lists the job, 503 if one could not
// be read. Without ?cluster all are asked, and each answer says whose it is if there are several.
func ExplainJobs(clusters map[string]Latester) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /explain/job/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
		if err != nil || id == 0 {
			http.Error(w, fmt.Sprintf("%q is not the number of a job", r.PathValue("id")), http.StatusBadRequest)
			return
		}
		names := []string{r.URL.Query().Get("cluster")}
		if names[0] == "" {
			names = names[:0]
			for name := range clusters {
				names = append(names, name)
			}
			slices.Sort(names)
		}
		var said []Explanation
		var unread error
		for _, name := range names {
			c, ok := clusters[name]
			if !ok {
				http.Error(w, fmt.Sprintf("no cluster %q here", name), http.StatusNotFound)
				return
			}
			prefix := ""
			if len(names) > 1 {
				prefix = "cluster " + name + ": "
			}
			f, err := c.Latest()
			if err != nil {
				unread = errors.Join(unread, fmt.Errorf("%s%w", prefix, err))
				continue
			}
			if text, ok := f.Explain(uint32(id)); ok {
				said = append(said, Explanation{name, uint32(id), text})
			}
		}
		switch {
		case len(said) > 0 && r.URL.Query().Get("output") == "json":
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(said)
		case len(said) > 0:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			for _, s := range said {
				if len(names) > 1 {
					fmt.Fprintf(w, "cluster %s: ", s.Cluster)
				}
				fmt.Fprintln(w, s.Text)
			}
		case unread != nil:
			http.Error(w, unread.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, fmt.Sprintf("Slurm lists no job %d that waits or runs", id), http.StatusNotFound)
		}
	})
	return mux
}
