package spool

import (
	"encoding/binary"
	"fmt"
)

// checkJSON reports where data stops being one valid JSON text. It accepts what
// encoding/json accepts and exists for its speed: checking the resume file is most of
// what the resume program computes.
func checkJSON(data []byte) error {
	c := jsonChecker{data: data}
	if !c.document() {
		return fmt.Errorf("not valid JSON at byte %d of %d", c.pos, len(data))
	}
	return nil
}

// maxJSONDepth is encoding/json's limit.
const maxJSONDepth = 10000

type jsonChecker struct {
	data []byte
	pos  int
	open []byte // the brackets we are in
}

// document checks one value and what surrounds it. It keeps its own stack, so that no
// input can exhaust the goroutine's.
func (c *jsonChecker) document() bool {
	for {
		// A value is due.
		if !c.value() {
			return false
		}
		// A value has ended, or a bracket was opened and its first element is due.
		for {
			c.space()
			if len(c.open) == 0 {
				return c.pos == len(c.data)
			}
			if c.pos == len(c.data) {
				return false
			}
			b, inObject := c.data[c.pos], c.open[len(c.open)-1] == '{'
			if b == ',' {
				c.pos++
				if inObject && !c.key() {
					return false
				}
				break
			}
			if b != '}' && b != ']' || inObject != (b == '}') {
				return false
			}
			c.pos++
			c.open = c.open[:len(c.open)-1]
		}
	}
}

// value consumes a scalar or an empty container, or opens containers up to the first scalar.
func (c *jsonChecker) value() bool {
	for {
		c.space()
		if c.pos == len(c.data) {
			return false
		}
		switch b := c.data[c.pos]; b {
		case '"':
			return c.text()
		case 't':
			return c.word("true")
		case 'f':
			return c.word("false")
		case 'n':
			return c.word("null")
		case '{', '[':
			if len(c.open) == maxJSONDepth {
				return false
			}
			c.pos++
			c.open = append(c.open, b)
			c.space()
			if c.pos < len(c.data) && (c.data[c.pos] == '}' || c.data[c.pos] == ']') {
				return true // document closes it, or finds the wrong bracket
			}
			if b == '{' && !c.key() {
				return false
			}
		default:
			return c.number()
		}
	}
}

// key consumes a member's name and colon.
func (c *jsonChecker) key() bool {
	c.space()
	if c.pos == len(c.data) || c.data[c.pos] != '"' || !c.text() {
		return false
	}
	c.space()
	if c.pos == len(c.data) || c.data[c.pos] != ':' {
		return false
	}
	c.pos++
	return true
}

func (c *jsonChecker) space() {
	for c.pos < len(c.data) {
		switch c.data[c.pos] {
		case ' ', '\t', '\r', '\n':
			c.pos++
		default:
			return
		}
	}
}

func (c *jsonChecker) word(w string) bool {
	for i := range len(w) {
		if c.pos == len(c.data) || c.data[c.pos] != w[i] {
			return false
		}
		c.pos++
	}
	return true
}

// text consumes a string. Like encoding/json it does not look at the bytes above 0x7f.
func (c *jsonChecker) text() bool {
	data := c.data
	for i := c.pos + 1; i < len(data); i++ {
		for i+8 <= len(data) && plain(binary.LittleEndian.Uint64(data[i:])) {
			i += 8
		}
		if i == len(data) {
			break
		}
		switch b := data[i]; {
		case b == '"':
			c.pos = i + 1
			return true
		case b < ' ':
			c.pos = i
			return false
		case b == '\\':
			i++
			if i == len(data) {
				break
			}
			switch data[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i == len(data) || !isHex(data[i]) {
						c.pos = i
						return false
					}
				}
			default:
				c.pos = i
				return false
			}
		}
	}
	c.pos = len(data)
	return false
}

// plain reports whether none of eight bytes is a quote, a backslash or below a blank.
// Each term has the high bit of a byte set where that byte is one; bytes above 0x7f
// may hide behind it, so that they are looked at singly.
func plain(v uint64) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote, slash := v^(ones*'"'), v^(ones*'\\')
	return ((quote-ones)|(slash-ones)|(v-ones*' ')|v)&highs == 0
}

func isHex(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
}

func (c *jsonChecker) number() bool {
	if c.at('-') {
		c.pos++
	}
	if c.at('0') {
		c.pos++
	} else if !c.digits() {
		return false
	}
	if c.at('.') {
		c.pos++
		if !c.digits() {
			return false
		}
	}
	if c.at('e') || c.at('E') {
		c.pos++
		if c.at('+') || c.at('-') {
			c.pos++
		}
		return c.digits()
	}
	return true
}

func (c *jsonChecker) at(b byte) bool { return c.pos < len(c.data) && c.data[c.pos] == b }

func (c *jsonChecker) digits() bool {
	start := c.pos
	for c.pos < len(c.data) && '0' <= c.data[c.pos] && c.data[c.pos] <= '9' {
		c.pos++
	}
	return c.pos > start
}
