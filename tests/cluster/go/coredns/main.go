// Command coredns is CoreDNS with only the plugins that a cluster's DNS needs.
//
// The stock binary links some fifty plugins with the SDKs of three clouds; it takes three times as
// long to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order is the order in which a query passes the plugins.
	dnsserver.Directives = []string{"ready", "errors", "template", "kubernetes"}
	coremain.Run()
}
