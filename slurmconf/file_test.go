package slurmconf

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// settingsText writes settings in a form that tests can compare.
func settingsText(settings []Setting) string {
	var lines []string
	for _, s := range settings {
		text := fmt.Sprintf("%s%s=<%s>", s.Key, s.Operator, s.Value)
		for _, field := range s.Fields {
			text += fmt.Sprintf(" %s%s=<%s>", field.Key, field.Operator, field.Value)
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}

func TestParseFile(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"empty":                    {"", ""},
		"blanks and comments":      {"\n  \t\r\n# A=b\n   # c\n\\\n", ""},
		"plain":                    {"A=b\n", "A=<b>"},
		"no newline":               {"A=b", "A=<b>"},
		"carriage returns":         {"A=b\r\nB=c\r\n", "A=<b>\nB=<c>"},
		"blanks around":            {" \t A_1.x =\v b \n", "A_1.x=<b>"},
		"operators":                {"A+=b\nA -= b\nA *=b\nA/= b\nA==b", "A+=<b>\nA-=<b>\nA*=<b>\nA/=<b>\nA=<=b>"},
		"quotes":                   {`A="b c" D="" E=f"g`, `A=<b c> D=<> E=<f"g>`},
		"quotes inside":            {`A="b"c D=e"f" G="h"i"`, `A=<"b"c> D=<e"f"> G=<"h"i">`},
		"single quotes":            {`A='b`, `A=<'b>`},
		"open quote":               {`A="b`, `A=<"b>`},
		"quote over two pairs":     {`A="b C="d`, `A=<"b> C=<"d>`},
		"comment behind":           {"A=b # c\nB=c#d", "A=<b>\nB=<c>"},
		"comment in quotes":        {`A=\"b # c"`, `A=<"b>`},
		"escapes":                  {`A=b\#c\\d\e\ f=g`, "A=<b#c\\de> f=<g>"},
		"comment after backslash":  {`A=b\\# c`, `A=<b\>`},
		"three backslashes":        {`A=b\\\# c=d`, `A=<b\#> c=<d>`},
		"continued":                {"A=b\\\nc \\\n D=e\nF=g", "A=<bc> D=<e>\nF=<g>"},
		"continued key":            {"AB\\\nC=d", "ABC=<d>"},
		"continued in quotes":      {"A=\"b \\\nc\"", "A=<b c>"},
		"blanks after a backslash": {"A=b \\ \t\r\nC=d", "A=<b> C=<d>"},
		"comment after it":         {"A=b \\ # c\nC=d", "A=<b> C=<d>"},
		"comment does not go on":   {"A=b # c \\\nC=d", "A=<b>\nC=<d>"},
		"even backslashes":         {"A=b\\\\\nC=d", "A=<b\\>\nC=<d>"},
		"odd backslashes":          {"A=b\\\\\\\nC=d", `A=<b\C=d>`},
		"continued into the end":   {"A=b\\", "A=<b>"},
		"empty field eats":         {"A=b C= D=e", "A=<b> C=<D=e>"},
		"a value on the next line": {"A= \\\n b", "A=<b>"},
		"include is a key, too":    {"Include=a\nIncludes=b", "Include=<a>\nIncludes=<b>"},
		"not ASCII":                {"A=b\xe9\u00a0c", "A=<b\xe9\u00a0c>"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("slurm.conf", []byte(test.text))
			require.NoError(t, err)
			assert.Equal(t, test.want, settingsText(f.Settings()))
			assert.Equal(t, test.text, f.String())
		})
	}
}

func TestParseFileProblems(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no value":           {"A=b\nResumeTimeout=\n", `slurm.conf:2:1: "ResumeTimeout" has no value; write ResumeTimeout="" or remove it`},
		"no field's value":   {"A=b CPUs =  # 4", `slurm.conf:1:5: "CPUs" has no value; write CPUs="" or remove it`},
		"no pair":            {"\n  hello world", `slurm.conf:2:3: "hello world" is no key=value; write key=value, or # before a comment`},
		"words behind":       {"A=b c d=e", `slurm.conf:1:5: "c" is no key=value; put quotes around a value with blanks, and # before a comment`},
		"open quote":         {`A="b c`, `slurm.conf:1:6: the value of A begins with a quote that is not closed before a blank or the end of the line; write it as A="..." without quotes inside`},
		"bad key":            {"a-b=c", `slurm.conf:1:1: "a-b=c" is no key=value`},
		"continued":          {"A=b \\\n  c", `slurm.conf:2:3: "c" is no key=value`},
		"NUL":                {"A=b\x00c\n", "slurm.conf:1:4: a NUL byte"},
		"late include":       {" Include x\n", "slurm.conf:1:2: an Include that does not begin the line"},
		"bare include":       {"include \n", "slurm.conf:1:1: Include without a file; write Include <file>"},
		"include at the end": {"A=b\nInclude x", `slurm.conf:2:9: Include "x" ends without a blank or newline`},
		"include # behind":   {"Include x#c\n", `slurm.conf:1:9: Include "x" ends without a blank`},
		"two files":          {"Include x y\n", `slurm.conf:1:10: more than one word after Include: "y"`},
		"glob":               {"Include x*.conf\n", `slurm.conf:1:9: Include "x*.conf": Slurm expands no patterns; give each file a line of its own`},
		"long line":          {"A=b\n" + strings.Repeat("#", MaxLineLength+1), "slurm.conf:2:1: the line has 1048577 bytes, more than 1048576; give each NodeName"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("slurm.conf", []byte(test.text))
			require.ErrorContains(t, err, test.want)
			var problem Problem
			require.ErrorAs(t, err, &problem)
			assert.Equal(t, test.text, f.String(), "broken lines stay")
		})
	}
	t.Run("all of them", func(t *testing.T) {
		_, err := ParseFile("x", []byte("a\nb=c\nd"))
		var problems Problems
		require.ErrorAs(t, err, &problems)
		assert.Len(t, problems, 2)
	})
	t.Run("too large", func(t *testing.T) {
		f, err := ParseFile("x", make([]byte, MaxFileSize+1))
		require.EqualError(t, err, "x: the file has 16777217 bytes, more than 16777216; split it with Include, or write nodes as hostlists (node[1-5000])")
		assert.Nil(t, f)
	})
}

func TestPositions(t *testing.T) {
	f, err := ParseFile("/etc/slurm/slurm.conf", []byte("# c\n\nNodeName=a \\\n\tCPUs = 4 Gres=\\\ngpu:2\nX=y\n"))
	require.NoError(t, err)
	node := f.Settings()[0]
	assert.Equal(t, "/etc/slurm/slurm.conf:3:1", node.Position.String())
	assert.Equal(t, "/etc/slurm/slurm.conf:3:10", node.ValuePosition.String())
	cpus, ok := node.Field("cpus")
	assert.True(t, ok)
	assert.Equal(t, "/etc/slurm/slurm.conf:4:2", cpus.Position.String())
	assert.Equal(t, "/etc/slurm/slurm.conf:4:9", cpus.ValuePosition.String())
	gres, _ := node.Field("Gres")
	assert.Equal(t, "/etc/slurm/slurm.conf:5:1", gres.ValuePosition.String())
	x, ok := f.Get("x")
	assert.True(t, ok)
	assert.Equal(t, 6, x.Position.Line)
	_, ok = f.Get("z")
	assert.False(t, ok)
}

func TestEdits(t *testing.T) {
	tests := map[string]struct {
		text string
		edit func(f *File) error
		want string
	}{
		"set in place":        {"# a\nresumetimeout =  60   # b\nX=y\n", func(f *File) error { return f.Set("ResumeTimeout", "90") }, "# a\nresumetimeout =  90   # b\nX=y\n"},
		"set a new one":       {"X=y", func(f *File) error { return f.Set("A", "b c") }, "X=y\nA=\"b c\"\n"},
		"set into nothing":    {"", func(f *File) error { return f.Set("A", "") }, "A=\"\"\n"},
		"set the last":        {"A=1\n#\nA=2 # c\nB=1\n", func(f *File) error { return f.Set("a", "3") }, "#\nA=3 # c\nB=1\n"},
		"set the same":        {"A=\"1\"\n", func(f *File) error { return f.Set("a", "1") }, "A=\"1\"\n"},
		"set over lines":      {"A=\\\n\"b c\" # d\n", func(f *File) error { return f.Set("A", "e#f\\g") }, "A=\\\ne\\#f\\\\g # d\n"},
		"set keeps operators": {"A += 1\n", func(f *File) error { return f.Set("A", "2") }, "A += 2\n"},
		"add":                 {"A=b \\", func(f *File) error { return f.Add("NodeName=a CPUs=4\n# c") }, "A=b \\\n\nNodeName=a CPUs=4\n# c\n"},
		"remove":              {"A=1\nB=2\na=3 \\\n\n# c\n", func(f *File) error { f.Remove("A"); return nil }, "B=2\n# c\n"},
		"remove a record":     {"NodeName=a\nNodeName=b\n", func(f *File) error { f.RemoveRecord("nodename", "a"); return nil }, "NodeName=b\n"},
		"set a field":         {"NodeName=a CPUs=1 State=CLOUD#c\n", func(f *File) error { return f.SetField("NodeName", "a", "cpus", "64") }, "NodeName=a CPUs=64 State=CLOUD#c\n"},
		"set a new field":     {"NodeName=a CPUs=1 # c\n", func(f *File) error { return f.SetField("NodeName", "a", "Reason", "a b") }, "NodeName=a CPUs=1 Reason=\"a b\" # c\n"},
		"remove a field":      {"NodeName=a CPUs=1 Gres=gpu:1 # c\n", func(f *File) error { f.RemoveField("NodeName", "a", "cpus"); return nil }, "NodeName=a Gres=gpu:1 # c\n"},
		"add words":           {"SlurmctldParameters=a,b=1 # c\n", func(f *File) error { return f.AddWords("SlurmctldParameters", "c", "B=2", "A") }, "SlurmctldParameters=A,B=2,c # c\n"},
		"add first words":     {"", func(f *File) error { return f.AddWords("DebugFlags", "Power", "NodeFeatures") }, "DebugFlags=Power,NodeFeatures\n"},
		"remove words":        {"X=a,b=1,c\n", func(f *File) error { return f.RemoveWords("x", "B", "z") }, "X=a,c\n"},
		"remove all words":    {"X=a,b=1\nY=z\n", func(f *File) error { return f.RemoveWords("x", "B", "a") }, "Y=z\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("slurm.conf", []byte(test.text))
			require.NoError(t, err)
			require.NoError(t, test.edit(f))
			assert.Equal(t, test.want, f.String())
			again, err := ParseFile("slurm.conf", []byte(f.String()))
			require.NoError(t, err)
			assert.Equal(t, again.Settings(), f.Settings(), "with positions")
		})
	}
}

func TestEditErrors(t *testing.T) {
	tests := map[string]struct {
		edit func(f *File) error
		want string
	}{
		"repeatable":    {func(f *File) error { return f.Set("nodename", "b") }, "setting nodename in x.conf: it may stand several times; use Add, RemoveRecord or SetField"},
		"has fields":    {func(f *File) error { return f.Set("Odd", "b") }, "its line has fields; use SetField"},
		"quote":         {func(f *File) error { return f.Set("A", `say "hi"`) }, "cannot be written for Slurm"},
		"only quotes":   {func(f *File) error { return f.Set("A", `"a"`) }, "cannot be written for Slurm"},
		"newline":       {func(f *File) error { return f.Set("A", "a\nb") }, "has a newline or NUL"},
		"NUL":           {func(f *File) error { return f.Set("A", "a\x00b") }, "has a newline or NUL"},
		"bad key":       {func(f *File) error { return f.Set("A B", "a") }, `"A B" cannot be a key`},
		"no key":        {func(f *File) error { return f.Set("", "a") }, "cannot be a key"},
		"broken line":   {func(f *File) error { return f.Add("NodeName") }, "adding to x.conf"},
		"no record":     {func(f *File) error { return f.SetField("NodeName", "z", "CPUs", "1") }, "no such line in x.conf; add it first"},
		"comma":         {func(f *File) error { return f.AddWords("A", "b,c") }, "one word at a time"},
		"a bad field":   {func(f *File) error { return f.SetField("NodeName", "a", "C PU", "1") }, "cannot be a key"},
		"a bad field's": {func(f *File) error { return f.SetField("NodeName", "a", "CPUs", "1\n2") }, "has a newline"},
	}
	const text = "NodeName=a CPUs=1\nOdd=1 B=2\nA=x\n"
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := ParseFile("x.conf", []byte(text))
			require.NoError(t, err)
			require.ErrorContains(t, test.edit(f), test.want)
			assert.Equal(t, text, f.String(), "nothing is changed")
		})
	}
}

// drawText draws text of the pieces that mean something to the parser.
func drawText(t *rapid.T) string {
	pieces := rapid.SampledFrom([]string{"A", "b", "NodeName", "CPUs", "=", "=", "=", "+=", " ", " ", "\t", "\"", "\\", "\\\n", "\n", "\n", "\r\n",
		"#", "\\#", "Include ", "x.conf", ",", "1", "[1-3]", "é"})
	return strings.Join(rapid.SliceOfN(pieces, 0, 40).Draw(t, "text"), "")
}

func TestAnyTextIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		f, _ := ParseFile("x", []byte(text))
		require.Equal(t, text, f.String())
	})
}

func TestAnyEditIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.Custom(func(t *rapid.T) *File {
			f, err := ParseFile("x", []byte(drawText(t)))
			if err != nil {
				return nil
			}
			return f
		}).Filter(func(f *File) bool { return f != nil }).Draw(t, "file")
		key := rapid.SampledFrom([]string{"A", "b", "New"}).Draw(t, "key")
		value := rapid.StringOf(rapid.SampledFrom([]rune("ab \"\\#=\t,'\ré"))).Draw(t, "value")
		checkSet(t, f, key, value)
	})
}

// checkSet sets a key and checks that the text says so, and of all else what it said before.
func checkSet(t require.TestingT, f *File, key, value string) {
	without := func(f *File) string {
		var other []Setting
		for _, s := range f.Settings() {
			if !strings.EqualFold(s.Key, key) {
				other = append(other, s)
			}
		}
		return settingsText(other)
	}
	text, others := f.String(), without(f)
	if err := f.Set(key, value); err != nil {
		require.Equal(t, text, f.String(), "a refused edit changed something")
		return
	}
	again, err := ParseFile(f.Name(), []byte(f.String()))
	require.NoError(t, err)
	require.Equal(t, again.Settings(), f.Settings())
	require.Equal(t, others, without(again))
	got, ok := again.Get(key)
	require.True(t, ok)
	require.Equal(t, value, got.Value)
}

func FuzzParseFile(f *testing.F) {
	f.Add("ClusterName=a\nNodeName=n[1-3] \\\n CPUs=4 # c\nInclude x\n", "ResumeTimeout", "60")
	f.Add("A=\"b c\"\\\n#\nA+=\\#\\\\", "A", "x \\ #")
	f.Add("Include x#y\n=\n\x00", "NodeName", "\"")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		file, err := ParseFile("x", []byte(text))
		if file == nil {
			return
		}
		if file.String() != text {
			t.Fatalf("%q became %q", text, file.String())
		}
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 || problems[0].Position.Line < 1 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		checkSet(t, file, key, value)
	})
}
