#!/usr/bin/env bash
# Package: github.com/apache/rocketmq-client-go/v2 v2.1.3-0.20251226070945-2173d070fd1b (Go modules).
# Behaviour: consumer.CreateReplyMessage(request, body) reads the body as a text of message properties. The message that it
#   returns has no body, and where the text has the bytes 1 and 2 of that format its parts become properties.
# The guess one would make: it is MessageUtil.createReplyMessage of Java's client, whose second parameter has the same
#   name and is the body of the reply.
# Where it matters: a replier in Go written as the project's example: every broker refuses its reply, or would hand an
#   empty one to the client that asked, which then waits for its whole time. Setting Body on the result mends it.
# Output seen: body of the reply: 0 bytes; with bytes 1 and 2 in it: property name = value
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

go=$(command -v go || echo /usr/local/go/bin/go)
[ -x "$go" ] || { echo "no go on the path" >&2; exit 2; }
cat > main.go <<'GO'
package main

import (
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func main() {
	request := &primitive.MessageExt{}
	request.WithProperty(primitive.PropertyCluster, "DefaultCluster")
	request.WithProperty(primitive.PropertyCorrelationID, "1")
	plain, first := consumer.CreateReplyMessage(request, []byte("the answer"))
	binary, second := consumer.CreateReplyMessage(request, []byte("name\x01value\x02"))
	if first != nil || second != nil {
		panic(fmt.Sprint(first, second))
	}
	fmt.Printf("body of the reply: %d bytes; with bytes 1 and 2 in it: property name = %s\n", len(plain.Body), binary.GetProperty("name"))
}
GO
export HOME=$work GOPATH=$work/go GOCACHE=$work/go-build GOFLAGS='-mod=mod -modcacherw' GOTOOLCHAIN=local
("$go" mod init program && "$go" get github.com/apache/rocketmq-client-go/v2@v2.1.3-0.20251226070945-2173d070fd1b && "$go" build -o program .) > go.log 2>&1 ||
    { tail -n 3 go.log >&2; exit 2; }
./program > output 2>&1 || { tail -n 3 output >&2; exit 2; }
cat output
grep -qx 'body of the reply: 0 bytes; with bytes 1 and 2 in it: property name = value' output || exit 1
