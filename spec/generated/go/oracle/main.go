// What the generated Go parser says of files: an oracle on spec/weig.ksy.
//
//	go build -o oracle ./oracle && ./oracle < paths
//
// Reads paths, one a line; prints a line of JSON for each, as spec/generated/README.md tells.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kaitai-io/kaitai_struct_go_runtime/kaitai"

	"weig"
)

const mostPairs = 2000 // records; Pairs takes quadratic time

type accepted struct {
	Accept  bool    `json:"accept"`
	Tensors [][]any `json:"tensors"`
	Deep    *string `json:"deep"`
}

type rejected struct {
	Accept bool    `json:"accept"`
	Check  *string `json:"check"`
}

// tensors reads all that level open is about.
func tensors(body *weig.Weig_Container) ([][]any, error) {
	records, err := body.Tensors()
	if err != nil {
		return nil, err
	}
	rows := make([][]any, 0, len(records))
	for _, record := range records {
		name, err := record.Name()
		if err != nil {
			return nil, err
		}
		shape, err := record.Shape()
		if err != nil {
			return nil, err
		}
		dims := make([]int64, 0, len(shape.Dims))
		for _, dim := range shape.Dims {
			dims = append(dims, dim.Len)
		}
		if _, err = record.NameChars(); err != nil {
			return nil, err
		}
		rows = append(rows, []any{name, int(record.Dtype), dims, record.OfsData, record.LenData})
	}
	if len(records) <= mostPairs {
		_, err = body.Pairs()
	}
	return rows, err
}

func deep(body *weig.Weig_Container) error {
	records, err := body.Tensors()
	for _, record := range records {
		if _, err = record.Bools(); err != nil {
			return err
		}
	}
	return err
}

// failed gives the path of the check that an error is about; nil where the file ended.
func failed(err error) *string {
	var failure kaitai.ValidationFailedError
	if errors.As(err, &failure) {
		path := failure.SrcPath()
		return &path
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	panic(err) // a bug: the test sees the exit status
}

func answer(path string) any {
	data, err := os.ReadFile(path)
	if err != nil {
		return rejected{}
	}
	root := weig.NewWeig()
	if err := root.Read(kaitai.NewStream(bytes.NewReader(data)), nil, root); err != nil {
		return rejected{Check: failed(err)}
	}
	rows, err := tensors(root.Body)
	if err != nil {
		return rejected{Check: failed(err)}
	}
	good := accepted{Accept: true, Tensors: rows}
	if err := deep(root.Body); err != nil {
		good.Deep = failed(err)
	}
	return good
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line, err := json.Marshal(answer(lines.Text()))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
