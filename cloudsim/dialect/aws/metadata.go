package aws

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// metadataTree describes the paths of EC2's metadata service. A client needs a session token for
// each request (IMDSv2). The names of the paths come from the section "Instance metadata
// categories" in the user guide of Amazon EC2. In AWS, the path of the credentials contains the
// name of a role. In this tree, the path contains the instance's service account instead.
func metadataTree() *cloudsim.MetadataTreeSpec {
	const eni, image = "/meta-data/network/interfaces/macs/${mac}", "${labels." + labelImage + "}"
	texts := map[string]string{
		"/meta-data/ami-id":                         image,
		"/meta-data/hostname":                       "${name}",
		"/meta-data/instance-id":                    prefixInstance + "-${id.hex17}",
		"/meta-data/instance-type":                  "${type}",
		"/meta-data/local-hostname":                 "${name}",
		"/meta-data/local-ipv4":                     "${internal-ip}",
		"/meta-data/mac":                            "${mac}",
		"/meta-data/public-ipv4":                    "${external-ip}",
		"/meta-data/placement/availability-zone":    "${zone}",
		"/meta-data/placement/availability-zone-id": "${zone}",
		"/meta-data/placement/region":               "${region}",
		"/meta-data/services/domain":                "amazonaws.com",
		eni + "/device-number":                      "0",
		eni + "/interface-id":                       prefixInterface + "-${id.hex17}",
		eni + "/local-hostname":                     "${name}",
		eni + "/local-ipv4s":                        "${internal-ip}",
		eni + "/mac":                                "${mac}",
		eni + "/owner-id":                           "${project.dec12}",
		eni + "/subnet-id":                          prefixSubnet + "-${subnet.hex17}",
		eni + "/vpc-id":                             prefixVPC + "-${network.hex17}",
	}
	documents := map[string]string{
		"/dynamic/instance-identity/document": `{"accountId":"${project.dec12}","architecture":"x86_64","availabilityZone":"${zone}","imageId":"` + image + `","instanceId":"` + prefixInstance + `-${id.hex17}",` +
			`"instanceType":"${type}","privateIp":"${internal-ip}","region":"${region}","version":"2017-09-30"}`,
		"/meta-data/iam/security-credentials/${service-account}": `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"${access-key.id}",` +
			`"SecretAccessKey":"${access-key.secret}","Token":"${access-key.session-token}","Expiration":"${access-key.expires-at}"}`,
	}
	tree := &cloudsim.MetadataTreeSpec{
		Prefix:  "/latest",
		Session: &cloudsim.MetadataSession{Path: "/latest/api/token", TTLHeader: "X-aws-ec2-metadata-token-ttl-seconds", TokenHeader: "X-aws-ec2-metadata-token"}, //nolint:gosec // names of headers, not credentials
	}
	for p, text := range documents {
		tree.Leaves = append(tree.Leaves, cloudsim.MetadataLeaf{Path: p, Text: text, JSON: true})
	}
	for p, text := range texts {
		tree.Leaves = append(tree.Leaves, cloudsim.MetadataLeaf{Path: p, Text: text})
	}
	for dir, children := range listDirectories(slices.Concat(slices.Collect(maps.Keys(texts)), slices.Collect(maps.Keys(documents)))) {
		tree.Leaves = append(tree.Leaves, cloudsim.MetadataLeaf{Path: dir, Text: strings.Join(children, "\n")})
	}
	slices.SortFunc(tree.Leaves, func(a, b cloudsim.MetadataLeaf) int { return strings.Compare(a.Path, b.Path) })
	return tree
}

// listDirectories returns a map of all directories that contain the given paths. The value for a
// directory is the sorted list of the names of its children. The name of a child that is a
// directory ends with a slash. Each path must begin with /meta-data/ or /dynamic/.
func listDirectories(paths []string) map[string][]string {
	all := map[string][]string{}
	for _, p := range paths {
		slash := ""
		for p != "/meta-data" && p != "/dynamic" {
			dir := path.Dir(p)
			if child := path.Base(p) + slash; !slices.Contains(all[dir], child) {
				all[dir] = append(all[dir], child)
			}
			p, slash = dir, "/"
		}
	}
	for _, children := range all {
		slices.Sort(children)
	}
	return all
}
