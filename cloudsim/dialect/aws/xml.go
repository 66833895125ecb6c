package aws

import (
	"encoding/xml"
	"io"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// requestIDSetter is the body of an answer that contains the id of the request.
type requestIDSetter interface{ setRequestID(id string) }

// ec2Answer is the common part of EC2's answers.
type ec2Answer struct {
	ID string `xml:"requestId"`
}

func (a *ec2Answer) setRequestID(id string) { a.ID = id }

// writeAnswer writes an answer in the format of the requested service.
func writeAnswer(w http.ResponseWriter, r *dialect.Request, status int, body any) {
	if serviceOf(r).namespace == "" {
		writeJSON(w, status, body)
		return
	}
	if i, ok := body.(requestIDSetter); ok {
		i.setRequestID(r.ID)
	}
	writeXML(w, status, xml.Name{Space: serviceOf(r).namespace, Local: r.Form.Get("Action") + "Response"}, body)
}

func writeXML(w http.ResponseWriter, status int, element xml.Name, body any) {
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return // the client has disconnected
	}
	_ = xml.NewEncoder(w).EncodeElement(body, xml.StartElement{Name: element}) // an error means that the client has disconnected
}

type items[T any] struct {
	Items []T `xml:"item"`
}

// queryAnswer is an answer of Elastic Load Balancing. The field Result contains a struct with a
// field XMLName. The field XMLName determines the name of the XML element that contains the
// result.
type queryAnswer struct {
	Result any
	ID     string `xml:"ResponseMetadata>RequestId"`
}

func (a *queryAnswer) setRequestID(id string) { a.ID = id }

// emptyAnswer returns the answer of an Elastic Load Balancing call that has no result.
func emptyAnswer(q *query) *queryAnswer {
	return &queryAnswer{Result: struct{ XMLName xml.Name }{xml.Name{Local: q.Form.Get("Action") + "Result"}}}
}
