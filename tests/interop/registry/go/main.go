// The registry client of franz-go, unmodified, against a registry: `go run . URL`.  Fails with the first difference.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
)

const (
	record = `{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}`
	wider  = `{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"},` +
		`{"name":"b","type":"string","default":"x"}]}`
	narrow = `{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"},{"name":"c","type":"string"}]}`
	user   = `{"type":"record","name":"U","namespace":"n","fields":[{"name":"r","type":"n.R"}]}`
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal(got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("got %v, want %v", got, want))
	}
}

func code(err error) int {
	var found *sr.ResponseError
	if !errors.As(err, &found) {
		panic(fmt.Sprintf("no answer of the registry: %v", err))
	}
	return found.ErrorCode
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	types := must(client.SupportedTypes(ctx))
	equal(len(types), 3)

	first := must(client.CreateSchema(ctx, "go/1", sr.Schema{Schema: record}))
	equal([]any{first.Subject, first.Version}, []any{"go/1", 1})
	second := must(client.CreateSchema(ctx, "go/1", sr.Schema{Schema: wider}))
	equal(second.Version, 2)
	equal(must(client.SubjectVersions(ctx, "go/1")), []int{1, 2})
	equal(must(client.SchemaByVersion(ctx, "go/1", -1)).ID, second.ID)
	equal(must(client.LookupSchema(ctx, "go/1", sr.Schema{Schema: record})).ID, first.ID)
	if !strings.Contains(must(client.SchemaTextByID(ctx, first.ID)), `"a"`) {
		panic("the text of the schema")
	}
	if !strings.Contains(must(client.SchemaTextByVersion(ctx, "go/1", 2)), `"b"`) {
		panic("the text of the version")
	}
	equal(must(client.SubjectsByID(ctx, first.ID)), []string{"go/1"})
	equal(must(client.SchemaVersionsByID(ctx, first.ID)), []sr.SubjectVersion{{Subject: "go/1", Version: 1}})
	equal(len(must(client.Schemas(ctx, "go/1"))), 2)
	if len(must(client.AllSchemas(ctx))) < 2 {
		panic("all schemas")
	}

	refers := []sr.SchemaReference{{Name: "n.R", Subject: "go/1", Version: 1}}
	uses := must(client.CreateSchema(ctx, "go-u", sr.Schema{Schema: user, References: refers}))
	found := must(client.SchemaReferences(ctx, "go/1", 1))
	equal([]any{len(found), found[0].ID}, []any{1, uses.ID})
	guid := must(client.SchemaByVersion(ctx, "go-u", 1)).GUID
	equal(must(client.SchemaByGUID(ctx, guid)).ID, uses.ID)
	equal(must(client.SchemaIDsByGUID(ctx, guid))[0].ID, uses.ID)

	_, err := client.CreateSchema(ctx, "go/1", sr.Schema{Schema: narrow})
	equal(code(err), 409)
	_, err = client.SchemaByID(ctx, 1_000_000)
	equal(code(err), 40403)
	_, err = client.SchemaByVersion(ctx, "go/1", 9)
	equal(code(err), 40402)
	checked := must(client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "go/1", -1, sr.Schema{Schema: narrow}))
	equal([]any{checked.Is, len(checked.Messages) > 0}, []any{false, true})

	set := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, "go/1")
	equal([]any{set[0].Level, set[0].Err}, []any{sr.CompatNone, nil})
	equal(client.Compatibility(ctx, "go/1")[0].Level, sr.CompatNone)
	equal(client.Compatibility(ctx)[0].Level, sr.CompatBackward)
	equal(client.ResetCompatibility(ctx, "go/1")[0].Err, nil)
	equal(client.SetMode(ctx, sr.ModeReadOnly, "go/1")[0].Err, nil)
	equal(client.Mode(ctx, "go/1")[0].Mode, sr.ModeReadOnly)
	equal(client.ResetMode(ctx, "go/1")[0].Err, nil)

	must(client.CreateSchema(ctx, ":.go:s", sr.Schema{Schema: `"string"`}))
	if !reflect.DeepEqual(must(client.Contexts(ctx)), []string{".", ".go"}) {
		panic("the contexts")
	}
	_, err = client.DeleteSubject(ctx, "go/1", sr.SoftDelete)
	equal(code(err), 42206)
	equal(must(client.DeleteSubject(ctx, "go-u", sr.SoftDelete)), []int{1})
	equal(must(client.DeleteSubject(ctx, "go-u", sr.HardDelete)), []int{1})
	equal(must(client.DeleteSubject(ctx, "go/1", sr.SoftDelete)), []int{1, 2})
	fmt.Println("franz-go: all calls")
}
