package slurmconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ResumeFile is the JSON that slurmctld hands to ResumeProgram in the file
// $SLURM_RESUME_FILE (src/slurmctld/power_save.c). It holds the jobs of one round of
// the power-save thread; nodes powered up by hand are in AllNodes and in no job.
type ResumeFile struct {
	// AllNodes is all_nodes_resume: what this call is to power up, the same list as on
	// the command line.
	AllNodes Hostlist
	Jobs     []ResumeJob
	// Unknown holds top-level fields that this version does not know or could not
	// read, as they were.
	Unknown map[string]json.RawMessage
	// Problems says which fields and jobs could not be read. Everything else could.
	Problems []error
}

// ResumeJob is one job that waits for nodes.
type ResumeJob struct {
	JobID uint32
	// NodesAlloc are all nodes of the job (of this component, if heterogeneous), those
	// that are already up included.
	NodesAlloc Hostlist
	// NodesResume are those to power up now: a part of NodesAlloc when ResumeRate
	// slices the job, or when other jobs already wait for some of the nodes.
	NodesResume Hostlist
	Partition   string
	Features    string // the features chosen for the job; "" when none
	Extra       string // sbatch --extra; "" when none
	Reservation string // "" when none
	// Oversubscribe is NO, YES or OK, before 26.05 also USER, MCS or TOPO.
	Oversubscribe string
	// Exclusive is NO, NODE, USER, MCS or TOPO; "" before 26.05.
	Exclusive string
	// Priority is the job's priority; nil before 26.05.
	Priority *uint32
	// Unknown holds fields that this version does not know or could not read, as they
	// were.
	Unknown map[string]json.RawMessage
}

// ParseResumeFile reads a resume file of any Slurm version from 24.11 on. It fails
// only when data is not one JSON object; nothing in it can be trusted then, and the
// command line still names the nodes.
//
// Otherwise every part stands for itself. A field of the wrong type is left empty,
// kept in Unknown and listed in Problems; the job and all other jobs stay. Only a job
// without a usable job_id is left out: nobody could act on it, and its nodes are in
// AllNodes all the same. Unknown fields are no problem: new versions add some.
func ParseResumeFile(data []byte) (ResumeFile, error) {
	var f ResumeFile
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&f.Unknown); err != nil {
		return ResumeFile{}, fmt.Errorf("resume file: %w", locate(data, err))
	}
	if f.Unknown == nil {
		return ResumeFile{}, errors.New("resume file: want a JSON object, found null")
	}
	if _, err := dec.Token(); err != io.EOF {
		return ResumeFile{}, fmt.Errorf("resume file: more data after the JSON object, at byte %d", dec.InputOffset()+1)
	}
	top := fields{raw: f.Unknown, problems: &f.Problems}
	if _, ok := f.Unknown["all_nodes_resume"]; !ok {
		top.problem("all_nodes_resume", errors.New("missing"))
	}
	top.hostlist("all_nodes_resume", &f.AllNodes)

	var jobs []json.RawMessage
	decode(&top, "jobs", &jobs, "a list or null")
	for i, raw := range jobs {
		where := fmt.Sprintf("jobs[%d]", i)
		if job, ok := parseResumeJob(raw, where, &f.Problems); ok {
			f.Jobs = append(f.Jobs, job)
		}
	}
	return f, nil
}

func parseResumeJob(raw json.RawMessage, where string, problems *[]error) (ResumeJob, bool) {
	var j ResumeJob
	if err := json.Unmarshal(raw, &j.Unknown); err != nil || j.Unknown == nil {
		*problems = append(*problems, fmt.Errorf("%s: want an object, found %s; job left out", where, excerpt(raw)))
		return ResumeJob{}, false
	}
	// The ID comes first, so that the other problems can name the job.
	f := fields{where: where + ".", raw: j.Unknown, problems: problems}
	const want = "a number from 1 to 4294967295 (job left out)"
	if !decode(&f, "job_id", &j.JobID, want) {
		return ResumeJob{}, false
	}
	if j.JobID == 0 {
		f.problem("job_id", errors.New("want "+want+", found none"))
		return ResumeJob{}, false
	}
	f.where = fmt.Sprintf("%s (job %d).", where, j.JobID)
	f.hostlist("nodes_alloc", &j.NodesAlloc)
	f.hostlist("nodes_resume", &j.NodesResume)
	f.string("partition", &j.Partition)
	f.string("features", &j.Features)
	f.string("extra", &j.Extra)
	f.string("reservation", &j.Reservation)
	f.string("oversubscribe", &j.Oversubscribe)
	f.string("exclusive", &j.Exclusive)
	decode(&f, "priority", &j.Priority, "a number from 0 to 4294967295")
	if len(j.Unknown) == 0 {
		j.Unknown = nil
	}
	return j, true
}

// fields takes known fields out of a JSON object; those it cannot read stay in raw.
type fields struct {
	where    string
	raw      map[string]json.RawMessage
	problems *[]error
}

// decode reads one field into to, which stays as it is when the field is missing or
// not what was wanted.
func decode[T any](f *fields, name string, to *T, want string) bool {
	raw, ok := f.raw[name]
	if !ok {
		return true
	}
	var value T
	if err := json.Unmarshal(raw, &value); err != nil {
		f.problem(name, fmt.Errorf("want %s, found %s", want, excerpt(raw)))
		return false
	}
	*to = value
	delete(f.raw, name)
	return true
}

func (f *fields) string(name string, to *string) bool {
	return decode(f, name, to, "a string or null")
}

func (f *fields) hostlist(name string, to *Hostlist) {
	var s string
	raw := f.raw[name]
	if !f.string(name, &s) {
		return
	}
	list, err := ParseHostlist(s)
	if err != nil {
		f.raw[name] = raw
		f.problem(name, err)
		return
	}
	*to = list
}

func (f *fields) problem(name string, err error) {
	*f.problems = append(*f.problems, fmt.Errorf("%s%s: %w", f.where, name, err))
}

// MarshalJSON writes the file as slurmctld does. What ParseResumeFile read comes out
// with the same meaning, unknown and unreadable fields included; only jobs that it
// left out are gone.
func (f ResumeFile) MarshalJSON() ([]byte, error) {
	jobs := make([]map[string]any, len(f.Jobs))
	for i := range f.Jobs {
		jobs[i] = f.Jobs[i].fields()
	}
	out := map[string]any{"all_nodes_resume": f.AllNodes, "jobs": jobs}
	overlay(out, f.Unknown)
	return json.Marshal(out)
}

// UnmarshalJSON is ParseResumeFile.
func (f *ResumeFile) UnmarshalJSON(data []byte) error {
	parsed, err := ParseResumeFile(data)
	if err == nil {
		*f = parsed
	}
	return err
}

func (j *ResumeJob) fields() map[string]any {
	out := map[string]any{
		"job_id":        j.JobID,
		"nodes_alloc":   j.NodesAlloc,
		"nodes_resume":  j.NodesResume,
		"partition":     nullable(j.Partition),
		"features":      nullable(j.Features),
		"extra":         nullable(j.Extra),
		"reservation":   nullable(j.Reservation),
		"oversubscribe": nullable(j.Oversubscribe),
	}
	if j.Exclusive != "" {
		out["exclusive"] = j.Exclusive
	}
	if j.Priority != nil {
		out["priority"] = *j.Priority
	}
	overlay(out, j.Unknown)
	return out
}

func overlay(out map[string]any, unknown map[string]json.RawMessage) {
	for name, raw := range unknown {
		out[name] = raw
	}
}

// nullable returns nil for the empty string: slurmctld writes unset strings as null.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// locate turns the byte offset of a JSON error into a line and a column.
func locate(data []byte, err error) error {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		before := data[:min(int(syntax.Offset), len(data))]
		line := bytes.Count(before, []byte("\n")) + 1
		column := len(before) - bytes.LastIndexByte(before, '\n') - 1
		return fmt.Errorf("line %d, column %d: %w", line, max(column, 1), err)
	case errors.As(err, &typ):
		return fmt.Errorf("want a JSON object, found %s", typ.Value)
	case errors.Is(err, io.EOF):
		return errors.New("empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("cut off after %d bytes", len(data))
	}
	return err
}

func excerpt(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}
