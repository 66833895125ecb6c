package aws_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// awscli is the path of the program in Debian's package awscli. The tests do not search PATH for
// the program, because the folders in PATH can contain another program with the name "aws".
const awscli = "/usr/bin/aws"

// commandLine returns a function that runs Debian's program aws. This function returns the output
// of the program and the text of its error. The option --endpoint-url is necessary, because
// versions of the program before 2.13 do not read the variable AWS_ENDPOINT_URL.
func commandLine(t *testing.T, w *world) func(args ...string) (out, failure string) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute, because the program starts slowly")
	}
	if _, err := os.Stat(awscli); err != nil {
		t.Skip("NOT RUN: the program aws of Debian's package awscli is not installed")
	}
	env := append(os.Environ(), "AWS_ACCESS_KEY_ID="+string(w.key.ID), "AWS_SECRET_ACCESS_KEY="+w.key.Secret, "AWS_DEFAULT_REGION=sim-1", "AWS_EC2_METADATA_DISABLED=true", "AWS_PAGER=", "HOME="+t.TempDir())
	return func(args ...string) (string, string) {
		t.Helper()
		cmd := exec.Command(awscli, append([]string{"--endpoint-url", w.url}, args...)...)
		cmd.Env = env
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err != nil && errs.Len() == 0 {
			t.Fatalf("aws %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String())
	}
}

// TestCommandLine runs the program of Debian's package awscli. The program uses the clients, the
// waiters and the paginators of AWS's SDK for Python.
func TestCommandLine(t *testing.T) {
	w := start(t)
	run := commandLine(t, w)
	ids := map[string]string{"$vpc": "vpc-00000000000000001", "$subnet": "subnet-00000000000000001", "$rtb": "rtb-00000000000000001"}
	for _, step := range []struct {
		command string
		keep    string   // name for the printed text
		want    []string // parts of the printed text
	}{
		{command: "sts get-caller-identity", want: []string{"000000000001", "user/aws"}},
		{command: "ec2 describe-availability-zones", want: []string{"sim-1b"}},
		{command: "ec2 describe-instance-types --query InstanceTypes[].[InstanceType,VCpuInfo.DefaultVCpus] --output text", want: []string{"small\t2", "large\t8"}},
		{command: "ec2 run-instances --image-id ami-12345678 --instance-type small --placement AvailabilityZone=sim-1a --user-data hello --tag-specifications ResourceType=instance,Tags=[{Key=Name,Value=web}] --query Instances[0].InstanceId --output text", keep: "$i", want: []string{"i-0"}},
		{command: "ec2 wait instance-running --instance-ids $i"},
		{command: "ec2 describe-instances --filters Name=tag:Name,Values=w* Name=instance-state-name,Values=running", want: []string{"ami-12345678", "sim-1a", `"State": "disabled"`}},
		{command: "ec2 describe-network-interfaces --filters Name=attachment.instance-id,Values=$i", want: []string{"eni-0", `"InstanceId": "i-`}},
		{command: "ec2 modify-instance-attribute --instance-id $i --no-source-dest-check"},
		{command: "ec2 describe-instances --instance-ids $i --query Reservations[0].Instances[0].SourceDestCheck", want: []string{"false"}},
		{command: "ec2 create-tags --resources $i $rtb --tags Key=kubernetes.io/cluster/lab,Value=owned"},
		{command: "ec2 describe-route-tables --filters Name=tag-key,Values=kubernetes.io/cluster/lab", want: []string{"$rtb", "0.0.0.0/0"}},
		{command: "ec2 create-route --route-table-id $rtb --destination-cidr-block 10.244.7.0/24 --instance-id $i", want: []string{"true"}},
		{command: "ec2 describe-route-tables --query RouteTables[0].Routes[].[DestinationCidrBlock,InstanceId,State] --output text", want: []string{"10.244.7.0/24\t$i\tactive"}},
		{command: "ec2 delete-route --route-table-id $rtb --destination-cidr-block 10.244.7.0/24"},
		{command: "ec2 create-volume --availability-zone sim-1a --size 10 --volume-type gp3 --iops 4000 --query VolumeId --output text", keep: "$vol", want: []string{"vol-0"}},
		{command: "ec2 wait volume-available --volume-ids $vol"},
		{command: "ec2 attach-volume --volume-id $vol --instance-id $i --device /dev/xvdba", want: []string{"/dev/xvdba"}},
		{command: "ec2 describe-volumes --filters Name=attachment.instance-id,Values=$i", want: []string{`"VolumeType": "gp3"`, `"Iops": 4000`, `"State": "in-use"`}},
		{command: "ec2 modify-volume --volume-id $vol --size 20", want: []string{`"TargetSize": 20`}},
		{command: "ec2 describe-volumes-modifications --volume-ids $vol", want: []string{`"OriginalSize": 10`, "completed"}},
		{command: "ec2 describe-volume-status --volume-ids $vol", want: []string{`"Status": "ok"`}},
		{command: "ec2 create-snapshot --volume-id $vol --description backup --query SnapshotId --output text", keep: "$snap", want: []string{"snap-0"}},
		{command: "ec2 wait snapshot-completed --snapshot-ids $snap"},
		{command: "ec2 describe-snapshots --owner-ids self --filters Name=volume-id,Values=$vol", want: []string{"$snap", "backup", `"VolumeSize": 20`}},
		{command: "ec2 delete-snapshot --snapshot-id $snap"},
		{command: "ec2 detach-volume --volume-id $vol --instance-id $i", want: []string{"/dev/xvdba"}},
		{command: "ec2 delete-volume --volume-id $vol"},
		{command: "ec2 wait volume-deleted --volume-ids $vol"},
		{command: "elb create-load-balancer --load-balancer-name web --subnets $subnet --listeners Protocol=TCP,LoadBalancerPort=80,InstanceProtocol=TCP,InstancePort=30080", want: []string{"elb.amazonaws.com"}},
		{command: "elb register-instances-with-load-balancer --load-balancer-name web --instances $i", want: []string{"$i"}},
		{command: "elb describe-load-balancers --load-balancer-names web", want: []string{"$i", "30080", "$vpc"}},
		{command: "elb delete-load-balancer --load-balancer-name web"},
		{command: "ec2 stop-instances --instance-ids $i", want: []string{`"Name": "stopped"`, `"Name": "running"`}},
		{command: "ec2 start-instances --instance-ids $i", want: []string{`"Code": 80`}},
		{command: "ec2 reboot-instances --instance-ids $i"},
		{command: "ec2 terminate-instances --instance-ids $i", want: []string{"terminated"}},
		{command: "ec2 wait instance-terminated --instance-ids $i"},
	} {
		args := strings.Fields(step.command)
		for n := range args {
			args[n] = expand(args[n], ids)
		}
		out, failure := run(args...)
		if failure != "" {
			t.Fatalf("aws %s: %s", strings.Join(args, " "), failure)
		}
		if step.keep != "" {
			ids[step.keep] = out
		}
		for _, want := range step.want {
			if !strings.Contains(out, expand(want, ids)) {
				t.Errorf("aws %s prints no %q:\n%s", strings.Join(args, " "), expand(want, ids), out)
			}
		}
	}
	for command, code := range map[string]string{
		"ec2 terminate-instances --instance-ids i-00000000000000099": "(InvalidInstanceID.NotFound)",
		"ec2 start-instances --dry-run --instance-ids " + ids["$i"]:  "(DryRunOperation)",
		"ec2 create-vpc --cidr-block 10.0.0.0/16":                    "(UnsupportedOperation)",
	} {
		if _, failure := run(strings.Fields(command)...); !strings.Contains(failure, code) {
			t.Errorf("aws %s: got error %q, want code %s", command, failure, code)
		}
	}
}

// expand replaces the names of ids in a text, such as $vpc, with the ids.
func expand(s string, ids map[string]string) string {
	for name, id := range ids {
		s = strings.ReplaceAll(s, name, id)
	}
	return s
}

// TestCommandLinePages proves that the program reads all pages of a list. It also proves that a
// user can continue a list with the token in the previous output.
func TestCommandLinePages(t *testing.T) {
	w := start(t)
	run := commandLine(t, w)
	must := func(args ...string) string {
		t.Helper()
		out, failure := run(args...)
		if failure != "" {
			t.Fatalf("aws %s: %s", strings.Join(args, " "), failure)
		}
		return out
	}
	made := strings.Fields(must("ec2", "run-instances", "--image-id", "ami-12345678", "--instance-type", "small", "--count", "12", "--query", "Instances[].InstanceId", "--output", "text"))
	list := []string{"ec2", "describe-instances", "--query", "Reservations[].Instances[].InstanceId", "--output", "text"}
	if got := strings.Fields(must(append(list, "--page-size", "5")...)); len(made) != 12 || !slices.Equal(got, made) {
		t.Errorf("pages of 5 instances: got %v, want %v", got, made)
	}
	var got []string
	for token := ""; ; {
		args := []string{"ec2", "describe-instances", "--max-items", "7", "--page-size", "5"}
		if token != "" {
			args = append(args, "--starting-token", token)
		}
		var l struct {
			NextToken    string
			Reservations []struct{ Instances []struct{ InstanceId string } } //nolint:revive // the name in the output
		}
		if err := json.Unmarshal([]byte(must(args...)), &l); err != nil {
			t.Fatal(err)
		}
		for _, r := range l.Reservations {
			got = append(got, r.Instances[0].InstanceId)
		}
		if token = l.NextToken; token == "" {
			break
		}
	}
	if !slices.Equal(got, made) {
		t.Errorf("instances, 7 for each call: got %v, want %v", got, made)
	}
	for _, name := range []string{"a", "b"} {
		must("elb", "create-load-balancer", "--load-balancer-name", name, "--subnets", "subnet-00000000000000001", "--listeners", "Protocol=TCP,LoadBalancerPort=80,InstancePort=30080")
	}
	// For most calls with the option --page-size, the AWS CLI reads all pages. But the call
	// DescribeLoadBalancers itself has a parameter PageSize. For this call, the AWS CLI sends the
	// option as this parameter, and prints only one page.
	page := []string{"elb", "describe-load-balancers", "--page-size", "1", "--query", "[LoadBalancerDescriptions[0].LoadBalancerName,NextMarker]", "--output", "text"}
	first := strings.Fields(must(page...))
	if len(first) != 2 || first[0] != "a" {
		t.Fatalf("first page of 1 load balancer: got %v, want a and a marker", first)
	}
	if second := strings.Fields(must(append(page, "--marker", first[1])...)); second[0] != "b" {
		t.Errorf("second page of 1 load balancer: got %v, want b", second)
	}
}
