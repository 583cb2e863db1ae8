package cli

import (
	"fmt"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
)

// OneOf is the value of an urfave.GenericFlag that is one of a few words, in any case; read it with String. Other words are wrong usage.
func OneOf(value string, words ...string) urfave.Generic { return &oneOf{value, words} }

type oneOf struct {
	value string
	words []string
}

func (o *oneOf) String() string { return o.value }

// Get is for those who ask for any flag's value.
func (o *oneOf) Get() any { return o.value }

// Set is called with what people write.
func (o *oneOf) Set(given string) error {
	i := slices.IndexFunc(o.words, func(w string) bool { return strings.EqualFold(w, given) })
	if i < 0 {
		return fmt.Errorf("use %s%s", or(o.words), didYouMean(given, o.words))
	}
	o.value = o.words[i]
	return nil
}

// OutputFlag is --output: the first word is the default, which is for people.
func OutputFlag(words ...string) urfave.Flag {
	return &urfave.GenericFlag{Name: "output", Aliases: []string{"o"}, Value: OneOf(words[0], words...), Usage: or(words)}
}

// or lists words: text, json or yaml.
func or(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// NoArguments is for the start of an action that takes none; remedy, if any, says what to do instead.
func NoArguments(c *urfave.Context, remedy string) error {
	if !c.Args().Present() {
		return nil
	}
	var names []string
	for _, sub := range c.Command.VisibleCommands() {
		names = append(names, sub.Name)
	}
	if remedy != "" {
		remedy = "; " + remedy
	}
	return UsageError("%s takes no arguments, got %q%s%s", c.Command.Name, c.Args().First(), didYouMean(c.Args().First(), names), remedy)
}
