package policy

import "encoding/json"

// Schema returns the JSON Schema (draft 2020-12) of the policy file, for editors and other tools. A file Load
// accepts validates against it; the reverse does not hold, since a schema knows nothing of references, header
// names that are taken, or bounds on durations.
func Schema() []byte {
	s := fileFields().shape().schema()
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title = "brownout policy"
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil // impossible: the schema is made of strings and numbers; a test decodes the result
	}
	return append(out, '\n')
}
