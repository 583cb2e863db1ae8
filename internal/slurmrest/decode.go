package slurmrest

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

// The types here hold the few fields the program uses. Their JSON is the same in
// data_parser v0.0.42 to v0.0.45; a test encodes each version's generated types
// and reads them back with these.

// envelope is what every answer carries besides its data.
type envelope struct {
	Errors   []wireError `json:"errors"`
	Warnings []wireError `json:"warnings"`
	Meta     struct {
		Slurm struct {
			Release string `json:"release"`
		} `json:"slurm"`
	} `json:"meta"`
}

// wireError is one entry of "errors" or "warnings".
type wireError struct {
	Description string `json:"description"`
	Number      int    `json:"error_number"`
	Name        string `json:"error"`
	Source      string `json:"source"`
}

// noVal is Slurm's {"set":…,"infinite":…,"number":…}. A plain number, null and
// "Infinity" are read too: parsers write those when started with the flag +complex.
type noVal struct {
	set, infinite bool
	number        int64
}

func (v *noVal) UnmarshalJSON(text []byte) error {
	*v = noVal{}
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
		*v = noVal{w.Set, w.Infinite, clampInt(w.Number)}
		return nil
	case string(text) == `"Infinity"`:
		v.infinite = true
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("%s is not a number", clip(string(text), 40))
	}
	*v = noVal{set: true, number: clampInt(f)}
	return nil
}

func clampInt(f float64) int64 {
	if f != f || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0
	}
	return int64(f)
}

// time is zero when Slurm has no value; Slurm counts seconds since 1970.
func (v noVal) time() time.Time {
	if !v.set || v.infinite || v.number <= 0 {
		return time.Time{}
	}
	return time.Unix(v.number, 0)
}

// wireNode leaves lists as text: thousands of nodes share a few values, which are
// then read once.
type wireNode struct {
	Name       string          `json:"name"`
	State      json.RawMessage `json:"state"`
	Reason     string          `json:"reason"`
	BootTime   noVal           `json:"boot_time"`
	LastBusy   noVal           `json:"last_busy"`
	Address    string          `json:"address"`
	InstanceID string          `json:"instance_id"`
	Features   json.RawMessage `json:"features"`
	Partitions json.RawMessage `json:"partitions"`
	Gres       string          `json:"gres"`
	CPUs       int             `json:"cpus"`
	RealMemory int64           `json:"real_memory"`
}

// nodeReader turns node objects into powersave's nodes, sharing equal values.
type nodeReader struct {
	states map[string]powersave.NodeState
	lists  map[string][]string
	texts  map[string]string
	want   map[string]bool // nil: all
	total  int             // nodes seen, wanted or not
	nodes  []powersave.SlurmNode
}

func newNodeReader(want map[string]bool) *nodeReader {
	return &nodeReader{
		states: map[string]powersave.NodeState{},
		lists:  map[string][]string{},
		texts:  map[string]string{},
		want:   want,
	}
}

// read takes the next node object from dec.
func (r *nodeReader) read(dec *json.Decoder) error {
	var w wireNode
	if err := dec.Decode(&w); err != nil {
		return err
	}
	if w.Name == "" {
		return errors.New("a node without a name")
	}
	r.total++
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
	r.nodes = append(r.nodes, powersave.SlurmNode{
		Name:       w.Name,
		State:      state,
		Reason:     r.text(w.Reason),
		BootTime:   w.BootTime.time(),
		LastBusy:   w.LastBusy.time(),
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

func (r *nodeReader) state(raw json.RawMessage) (powersave.NodeState, error) {
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
	// v0.0.45 adds words for two pairs of flags, besides the flags themselves.
	single := make([]string, 0, len(words))
	for _, w := range words {
		if w != "POWER_DOWN_ASAP" && w != "POWER_DOWN_FORCE" {
			single = append(single, w)
		}
	}
	s := powersave.ParseNodeState(single)
	r.states[string(raw)] = s
	return s, nil
}

func (r *nodeReader) list(raw json.RawMessage) ([]string, error) {
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

func (r *nodeReader) text(s string) string {
	if t, ok := r.texts[s]; ok {
		return t
	}
	r.texts[s] = s
	return s
}

// decodeAnswer reads one answer object. The members of the array called field are
// handed to item one by one; everything else but the envelope is skipped. It
// fails if the text ends early, so that what item saw is the complete array.
func decodeAnswer(body io.Reader, field string, item func(*json.Decoder) error) (envelope, error) {
	var env envelope
	dec := json.NewDecoder(body)
	if err := expect(dec, json.Delim('{')); err != nil {
		return env, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return env, err
		}
		switch {
		case item != nil && key == field:
			err = decodeItems(dec, item)
		case key == "errors":
			err = dec.Decode(&env.Errors)
		case key == "warnings":
			err = dec.Decode(&env.Warnings)
		case key == "meta":
			err = dec.Decode(&env.Meta)
		default:
			err = dec.Decode(new(skip))
		}
		if err != nil {
			return env, fmt.Errorf("reading %q: %w", key, noEOF(err))
		}
	}
	if err := expect(dec, json.Delim('}')); err != nil {
		return env, err
	}
	return env, nil
}

// readEnvelope reads an answer whose data do not matter.
func readEnvelope(body io.Reader) (envelope, error) { return decodeAnswer(body, "", nil) }

func decodeItems(dec *json.Decoder, item func(*json.Decoder) error) error {
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

// decodeErrors reads what an answer with a bad status says: Slurm's errors, if it
// is JSON, or else its text.
func decodeErrors(body io.Reader) (env envelope, text string) {
	raw, err := io.ReadAll(io.LimitReader(body, 1<<20))
	if err == nil && json.Unmarshal(raw, &env) == nil && len(env.Errors) > 0 {
		return env, ""
	}
	return envelope{}, clip(string(bytes.TrimSpace(bytes.ToValidUTF8(raw, []byte("?")))), 200)
}
