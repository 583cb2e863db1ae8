// Package answer reads what slurmrestd answers.
//
// One streaming decoder serves data_parser v0.0.42 to v0.0.45, because the few fields used here
// have the same JSON in each; a test of slurmrest encodes each version's generated types and
// reads them back. It stands apart from slurmrest so that it can be fuzzed without those types.
package answer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
)

// Envelope is what every answer carries besides its data.
type Envelope struct {
	Errors   []Problem `json:"errors"`
	Warnings []Problem `json:"warnings"`
	// LastUpdate is slurmctld's clock when it gave the answer. It is missing when nothing changed since the time asked about.
	LastUpdate Number `json:"last_update"`
	Meta       struct {
		Slurm struct {
			Release string `json:"release"`
		} `json:"slurm"`
	} `json:"meta"`
}

// Problem is one entry of "errors" or "warnings".
type Problem struct {
	Description string `json:"description"`
	Number      int    `json:"error_number"`
	Name        string `json:"error"`
	Source      string `json:"source"`
}

// Number is Slurm's {"set":…,"infinite":…,"number":…}. A plain number, null and
// "Infinity" are read too: parsers write those when started with the flag +complex.
type Number struct {
	set, infinite bool
	number        int64
}

// UnmarshalJSON reads any of the forms.
func (v *Number) UnmarshalJSON(text []byte) error {
	*v = Number{}
	switch {
	case len(text) == 0 || string(text) == "null":
		return nil
	case text[0] == '{':
		var w struct {
			Set      bool    `json:"set"`
			Infinite bool    `json:"infinite"`
			Number   float64 `json:"number"`
		}
		if err := json.Unmarshal(text, &w); err != nil {
			return err
		}
		*v = Number{w.Set, w.Infinite, clampInt(w.Number)}
		return nil
	case string(text) == `"Infinity"`:
		v.infinite = true
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%.40s is not a number", text)
	}
	*v = Number{set: true, number: clampInt(f)}
	return nil
}

func clampInt(f float64) int64 {
	if f != f || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0
	}
	return int64(f)
}

// Time is zero when Slurm has no value; Slurm counts seconds since 1970.
func (v Number) Time() time.Time {
	if !v.set || v.infinite || v.number <= 0 {
		return time.Time{}
	}
	return time.Unix(v.number, 0)
}

// Infinite stands for a timeout that never ends.
const Infinite = time.Duration(1<<63 - 1)

// Duration takes the number for seconds, as of a timeout; zero when Slurm has no value.
func (v Number) Duration() time.Duration {
	switch {
	case v.infinite || v.number == 0xffff: // INFINITE16
		return Infinite
	case !v.set || v.number < 0:
		return 0
	}
	return time.Duration(v.number) * time.Second
}

// wireNode leaves lists as text: thousands of nodes share a few values, which are
// then read once.
type wireNode struct {
	Name       string          `json:"name"`
	State      json.RawMessage `json:"state"`
	Reason     string          `json:"reason"`
	Comment    string          `json:"comment"`
	BootTime   Number          `json:"boot_time"`
	LastBusy   Number          `json:"last_busy"`
	Address    string          `json:"address"`
	InstanceID string          `json:"instance_id"`
	Features   json.RawMessage `json:"features"`
	Partitions json.RawMessage `json:"partitions"`
	Gres       string          `json:"gres"`
	CPUs       int             `json:"cpus"`
	RealMemory int64           `json:"real_memory"`
}

// Nodes turns node objects into powersave's nodes, sharing equal values.
type Nodes struct {
	List  []powersave.SlurmNode
	Total int // nodes seen, wanted or not

	want   map[string]bool // nil: all
	states map[string]powersave.NodeState
	lists  map[string][]string
	texts  map[string]string
}

// NewNodes keeps the nodes named in want, or all if it is nil.
func NewNodes(want map[string]bool) *Nodes {
	return &Nodes{
		states: map[string]powersave.NodeState{},
		lists:  map[string][]string{},
		texts:  map[string]string{},
		want:   want,
	}
}

// Read takes the next node object from dec.
func (r *Nodes) Read(dec *json.Decoder) error {
	var w wireNode
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a node without a name")
	}
	r.Total++
	if r.want != nil && !r.want[w.Name] {
		return nil
	}
	state, err := r.state(w.State)
	if err != nil {
		return fmt.Errorf("state of node %s: %w", w.Name, err)
	}
	features, err := r.list(w.Features)
	if err != nil {
		return fmt.Errorf("features of node %s: %w", w.Name, err)
	}
	partitions, err := r.list(w.Partitions)
	if err != nil {
		return fmt.Errorf("partitions of node %s: %w", w.Name, err)
	}
	address := w.Address
	if address == w.Name {
		address = w.Name
	}
	r.List = append(r.List, powersave.SlurmNode{
		Name:       w.Name,
		State:      state,
		Reason:     r.text(w.Reason),
		Comment:    w.Comment,
		BootTime:   w.BootTime.Time(),
		LastBusy:   w.LastBusy.Time(),
		Address:    address,
		InstanceID: w.InstanceID,
		Features:   features,
		Partitions: partitions,
		Gres:       r.text(w.Gres),
		CPUs:       w.CPUs,
		RealMemory: w.RealMemory,
	})
	return nil
}

func (r *Nodes) state(raw json.RawMessage) (powersave.NodeState, error) {
	if s, ok := r.states[string(raw)]; ok {
		return s, nil
	}
	words, err := r.list(raw)
	if err != nil {
		return 0, err
	}
	if len(words) == 0 {
		return 0, errors.New("it is missing") // an answer without states must not look like a healthy node
	}
	s := singleWords(words)
	r.states[string(raw)] = s
	return s, nil
}

// singleWords leaves out the words that v0.0.45 adds for two pairs of flags, besides the flags themselves.
func singleWords(words []string) powersave.NodeState {
	single := make([]string, 0, len(words))
	for _, w := range words {
		if w != "POWER_DOWN_ASAP" && w != "POWER_DOWN_FORCE" {
			single = append(single, w)
		}
	}
	return powersave.ParseNodeState(single)
}

func (r *Nodes) list(raw json.RawMessage) ([]string, error) {
	if l, ok := r.lists[string(raw)]; ok {
		return l, nil
	}
	var l []string
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil, err
		}
	}
	if len(l) == 0 {
		l = nil
	}
	r.lists[string(raw)] = l
	return l, nil
}

func (r *Nodes) text(s string) string {
	if t, ok := r.texts[s]; ok {
		return t
	}
	r.texts[s] = s
	return s
}

// Decode reads one answer object. The members of the array called field are
// handed to item one by one; everything else but the envelope is skipped. It
// fails if the text ends early, or has neither the array nor errors, so that what item saw is the complete array: slurmrestd
// writes it also when it is empty, and what somebody else answered is no empty queue.
func Decode(body io.Reader, field string, item func(*json.Decoder) error) (Envelope, error) {
	env, listed, err := decode(body, field, item)
	if err == nil && !listed && len(env.Errors) == 0 {
		err = fmt.Errorf("there are no %q in it: is it slurmrestd's?", field)
	}
	return env, err
}

// decode is Decode where the array may be missing, and tells whether it was there.
func decode(body io.Reader, field string, item func(*json.Decoder) error) (env Envelope, listed bool, err error) {
	dec := json.NewDecoder(body)
	if err := expect(dec, json.Delim('{')); err != nil {
		return env, listed, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return env, listed, err
		}
		switch {
		case item != nil && key == field:
			listed = true
			err = items(dec, item)
		case key == "errors":
			err = dec.Decode(&env.Errors)
		case key == "warnings":
			err = dec.Decode(&env.Warnings)
		case key == "last_update":
			err = dec.Decode(&env.LastUpdate)
		case key == "meta":
			err = dec.Decode(&env.Meta)
		default:
			err = dec.Decode(new(skip))
		}
		if err != nil {
			return env, listed, fmt.Errorf("reading %q: %w", key, noEOF(err))
		}
	}
	return env, listed, expect(dec, json.Delim('}'))
}

// DecodeEnvelope reads an answer whose data do not matter.
func DecodeEnvelope(body io.Reader) (Envelope, error) {
	env, _, err := decode(body, "", nil)
	return env, err
}

func items(dec *json.Decoder, item func(*json.Decoder) error) error {
	first, err := dec.Token()
	if err != nil || first == nil { // null: empty
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("%v instead of a list", first)
	}
	for dec.More() {
		if err := item(dec); err != nil {
			return err
		}
	}
	return expect(dec, json.Delim(']'))
}

func expect(dec *json.Decoder, want json.Delim) error {
	got, err := dec.Token()
	if err != nil {
		return noEOF(err)
	}
	if got != want {
		return fmt.Errorf("%v instead of %v", got, want)
	}
	return nil
}

// noEOF keeps an answer that ends early from looking like a clean end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skip reads any JSON value and forgets it.
type skip struct{}

func (*skip) UnmarshalJSON([]byte) error { return nil }

// DecodeFailure reads what an answer with a bad status says: Slurm's errors, if it
// is JSON, or else its text.
func DecodeFailure(body io.Reader) (env Envelope, text string) {
	raw, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if err == nil && json.Unmarshal(raw, &env) == nil && len(env.Errors) > 0 {
		return env, ""
	}
	return Envelope{}, string(bytes.TrimSpace(bytes.ToValidUTF8(raw, []byte("?"))))
}
