package hcloud

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// The types in this file are the JSON formats of Hetzner's API. Some fields are always empty, but
// the types contain them because clients expect them.

type location struct {
	ID          int64   `json:"id"`
	Name        string  `json:"name"`
	Description string  `json:"description"`
	Country     string  `json:"country"`
	City        string  `json:"city"`
	Latitude    float64 `json:"latitude"`
	Longitude   float64 `json:"longitude"`
	NetworkZone string  `json:"network_zone"`
}

type datacenter struct {
	ID          int64                 `json:"id"`
	Name        string                `json:"name"`
	Description string                `json:"description"`
	Location    location              `json:"location"`
	ServerTypes datacenterServerTypes `json:"server_types"`
}

type datacenterServerTypes struct {
	Supported             []int64 `json:"supported"`
	AvailableForMigration []int64 `json:"available_for_migration"`
	Available             []int64 `json:"available"`
}

type serverType struct {
	ID              int64                `json:"id"`
	Name            string               `json:"name"`
	Description     string               `json:"description"`
	Category        string               `json:"category"`
	Cores           int                  `json:"cores"`
	Memory          float64              `json:"memory"` // GB
	Disk            int                  `json:"disk"`   // GB
	StorageType     string               `json:"storage_type"`
	CPUType         string               `json:"cpu_type"`
	Architecture    string               `json:"architecture"`
	IncludedTraffic int64                `json:"included_traffic"`
	Prices          []price              `json:"prices"`
	Deprecated      bool                 `json:"deprecated"`
	Deprecation     *struct{}            `json:"deprecation"`
	Locations       []serverTypeLocation `json:"locations"`
}

type serverTypeLocation struct {
	ID          int64     `json:"id"`
	Name        string    `json:"name"`
	Available   bool      `json:"available"`
	Recommended bool      `json:"recommended"`
	Deprecation *struct{} `json:"deprecation"`
}

type price struct {
	Location          string `json:"location"`
	PriceHourly       amount `json:"price_hourly"`
	PriceMonthly      amount `json:"price_monthly"`
	IncludedTraffic   int64  `json:"included_traffic"`
	PricePerTBTraffic amount `json:"price_per_tb_traffic"`
}

type amount struct {
	Net   string `json:"net"`
	Gross string `json:"gross"`
}

type pricing struct {
	Currency string `json:"currency"`
	VATRate  string `json:"vat_rate"`
	Image    struct {
		PricePerGBMonth amount `json:"price_per_gb_month"`
	} `json:"image"`
	FloatingIP struct {
		PriceMonthly amount `json:"price_monthly"`
	} `json:"floating_ip"`
	FloatingIPs []struct{} `json:"floating_ips"`
	PrimaryIPs  []struct{} `json:"primary_ips"`
	Traffic     struct {
		PricePerTB amount `json:"price_per_tb"`
	} `json:"traffic"`
	ServerBackup struct {
		Percentage string `json:"percentage"`
	} `json:"server_backup"`
	ServerTypes       []typePrices `json:"server_types"`
	LoadBalancerTypes []typePrices `json:"load_balancer_types"`
	Volume            struct {
		PricePerGBMonth amount `json:"price_per_gb_month"`
	} `json:"volume"`
}

// typePrices contains the prices of a server type or of a load balancer type.
type typePrices struct {
	ID     int64   `json:"id"`
	Name   string  `json:"name"`
	Prices []price `json:"prices"`
}

type sshKey struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name"`
	Fingerprint string            `json:"fingerprint"` // MD5, e.g. "b7:2f:..."
	PublicKey   string            `json:"public_key"`
	Labels      map[string]string `json:"labels"`
	Created     time.Time         `json:"created"`
}

type placementGroup struct {
	ID      int64             `json:"id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Created time.Time         `json:"created"`
	Servers []int64           `json:"servers"`
	Type    string            `json:"type"`
}

type loadBalancerType struct {
	ID                      int64     `json:"id"`
	Name                    string    `json:"name"`
	Description             string    `json:"description"`
	MaxConnections          int       `json:"max_connections"`
	MaxServices             int       `json:"max_services"`
	MaxTargets              int       `json:"max_targets"`
	MaxAssignedCertificates int       `json:"max_assigned_certificates"`
	Prices                  []price   `json:"prices"`
	Deprecation             *struct{} `json:"deprecation"`
	Deprecated              *string   `json:"deprecated"`
}

type image struct {
	ID           int64             `json:"id"`
	Status       string            `json:"status"`
	Type         string            `json:"type"`
	Name         *string           `json:"name"`
	Description  string            `json:"description"`
	ImageSize    *float64          `json:"image_size"`
	DiskSize     float64           `json:"disk_size"`
	Created      *time.Time        `json:"created"`
	CreatedFrom  *struct{}         `json:"created_from"`
	BoundTo      *int64            `json:"bound_to"`
	OSFlavor     string            `json:"os_flavor"`
	OSVersion    *string           `json:"os_version"`
	Architecture string            `json:"architecture"`
	RapidDeploy  bool              `json:"rapid_deploy"`
	Protection   protection        `json:"protection"`
	Deprecated   *time.Time        `json:"deprecated"`
	Deleted      *time.Time        `json:"deleted"`
	Labels       map[string]string `json:"labels"`
}

type protection struct {
	Delete bool `json:"delete"`
}

type serverProtection struct {
	Delete  bool `json:"delete"`
	Rebuild bool `json:"rebuild"`
}

type action struct {
	ID        int64        `json:"id"`
	Command   string       `json:"command"`
	Status    string       `json:"status"` // running, success or error
	Progress  int          `json:"progress"`
	Started   time.Time    `json:"started"`
	Finished  *time.Time   `json:"finished"`
	Resources []resource   `json:"resources"`
	Error     *actionError `json:"error"`
}

type resource struct {
	ID   int64  `json:"id"`
	Type string `json:"type"`
}

type actionError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type actionReply struct {
	Action action `json:"action"`
}

type server struct {
	ID              int64              `json:"id"`
	Name            string             `json:"name"`
	Status          string             `json:"status"`
	Created         time.Time          `json:"created"`
	PublicNet       serverPublicNet    `json:"public_net"`
	PrivateNet      []serverPrivateNet `json:"private_net"`
	ServerType      serverType         `json:"server_type"`
	IncludedTraffic *int64             `json:"included_traffic"`
	OutgoingTraffic *int64             `json:"outgoing_traffic"`
	IngoingTraffic  *int64             `json:"ingoing_traffic"`
	BackupWindow    *string            `json:"backup_window"`
	RescueEnabled   bool               `json:"rescue_enabled"`
	ISO             *struct{}          `json:"iso"`
	Locked          bool               `json:"locked"`
	Location        location           `json:"location"`
	Image           *image             `json:"image"`
	Protection      serverProtection   `json:"protection"`
	Labels          map[string]string  `json:"labels"`
	Volumes         []int64            `json:"volumes"`
	PrimaryDiskSize int                `json:"primary_disk_size"`
	PlacementGroup  *placementGroup    `json:"placement_group"`
	LoadBalancers   []int64            `json:"load_balancers"`
}

type serverPublicNet struct {
	IPv4        *serverIPv4 `json:"ipv4"`
	IPv6        *serverIPv6 `json:"ipv6"`
	FloatingIPs []int64     `json:"floating_ips"`
	Firewalls   []struct{}  `json:"firewalls"`
}

type serverIPv4 struct {
	ID      int64  `json:"id"`
	IP      string `json:"ip"`
	Blocked bool   `json:"blocked"`
	DNSPtr  string `json:"dns_ptr"`
}

type serverIPv6 struct {
	ID      int64      `json:"id"`
	IP      string     `json:"ip"` // a network in CIDR notation
	Blocked bool       `json:"blocked"`
	DNSPtr  []struct{} `json:"dns_ptr"`
}

type serverPrivateNet struct {
	Network    int64    `json:"network"`
	IP         string   `json:"ip"`
	AliasIPs   []string `json:"alias_ips"`
	MACAddress string   `json:"mac_address"`
}

type volume struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name"`
	Status      string            `json:"status"`
	Server      *int64            `json:"server"`
	Location    location          `json:"location"`
	Size        int               `json:"size"` // GiB
	Format      *string           `json:"format"`
	Protection  protection        `json:"protection"`
	Labels      map[string]string `json:"labels"`
	LinuxDevice string            `json:"linux_device"`
	Created     time.Time         `json:"created"`
}

type network struct {
	ID                    int64             `json:"id"`
	Name                  string            `json:"name"`
	Created               time.Time         `json:"created"`
	IPRange               string            `json:"ip_range"`
	Subnets               []networkSubnet   `json:"subnets"`
	Routes                []networkRoute    `json:"routes"`
	Servers               []int64           `json:"servers"`
	LoadBalancers         []int64           `json:"load_balancers"`
	Protection            protection        `json:"protection"`
	Labels                map[string]string `json:"labels"`
	ExposeRoutesToVSwitch bool              `json:"expose_routes_to_vswitch"`
}

type networkSubnet struct {
	Type        string `json:"type"`
	IPRange     string `json:"ip_range"`
	NetworkZone string `json:"network_zone"`
	Gateway     string `json:"gateway,omitempty"`
	VSwitchID   *int64 `json:"vswitch_id,omitempty"`
}

type networkRoute struct {
	Destination string `json:"destination"`
	Gateway     string `json:"gateway"`
}

type loadBalancer struct {
	ID               int64                    `json:"id"`
	Name             string                   `json:"name"`
	PublicNet        loadBalancerPublicNet    `json:"public_net"`
	PrivateNet       []loadBalancerPrivateNet `json:"private_net"`
	Location         location                 `json:"location"`
	LoadBalancerType loadBalancerType         `json:"load_balancer_type"`
	Protection       protection               `json:"protection"`
	Labels           map[string]string        `json:"labels"`
	Created          time.Time                `json:"created"`
	Services         []service                `json:"services"`
	Targets          []lbTarget               `json:"targets"`
	Algorithm        algorithm                `json:"algorithm"`
	IncludedTraffic  int64                    `json:"included_traffic"`
	OutgoingTraffic  *int64                   `json:"outgoing_traffic"`
	IngoingTraffic   *int64                   `json:"ingoing_traffic"`
}

type loadBalancerPublicNet struct {
	Enabled bool           `json:"enabled"`
	IPv4    loadBalancerIP `json:"ipv4"`
	IPv6    loadBalancerIP `json:"ipv6"`
}

type loadBalancerIP struct {
	ID      int64   `json:"id"`
	IP      *string `json:"ip"`
	Blocked bool    `json:"blocked"`
	DNSPtr  *string `json:"dns_ptr"`
}

type loadBalancerPrivateNet struct {
	Network int64  `json:"network"`
	IP      string `json:"ip"`
}

type algorithm struct {
	Type string `json:"type"`
}

type service struct {
	Protocol        string       `json:"protocol"`
	ListenPort      int          `json:"listen_port"`
	DestinationPort int          `json:"destination_port"`
	Proxyprotocol   bool         `json:"proxyprotocol"`
	HTTP            *struct{}    `json:"http,omitempty"`
	HealthCheck     *healthCheck `json:"health_check"`
}

type healthCheck struct {
	Protocol string           `json:"protocol"`
	Port     int              `json:"port"`
	Interval int              `json:"interval"` // seconds
	Timeout  int              `json:"timeout"`  // seconds
	Retries  int              `json:"retries"`
	HTTP     *healthCheckHTTP `json:"http,omitempty"`
}

type healthCheckHTTP struct {
	Domain      string   `json:"domain"`
	Path        string   `json:"path"`
	Response    string   `json:"response"`
	StatusCodes []string `json:"status_codes"`
	TLS         bool     `json:"tls"`
}

type lbTarget struct {
	Type          string          `json:"type"`
	Server        *targetServer   `json:"server,omitempty"`
	LabelSelector *targetSelector `json:"label_selector,omitempty"`
	IP            *targetIP       `json:"ip,omitempty"`
	HealthStatus  []targetHealth  `json:"health_status,omitempty"`
	UsePrivateIP  bool            `json:"use_private_ip"`
}

type targetServer struct {
	ID int64 `json:"id"`
}

type targetSelector struct {
	Selector string `json:"selector"`
}

type targetIP struct {
	IP string `json:"ip"`
}

type targetHealth struct {
	ListenPort int    `json:"listen_port"`
	Status     string `json:"status"` // healthy, unhealthy or unknown
}

type errorReply struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Code    string        `json:"code"`
	Message string        `json:"message"`
	Details *errorDetails `json:"details"`
}

type errorDetails struct {
	Fields []errorField `json:"fields"`
}

type errorField struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages"`
}

type meta struct {
	Pagination pagination `json:"pagination"`
}

// pagination describes a page. If the previous or next page does not exist, its number is null. If
// the number of entries is unknown, LastPage and TotalEntries are null.
type pagination struct {
	Page         int  `json:"page"`
	PerPage      int  `json:"per_page"`
	PreviousPage *int `json:"previous_page"`
	NextPage     *int `json:"next_page"`
	LastPage     *int `json:"last_page"`
	TotalEntries *int `json:"total_entries"`
}

// idOrName is the id or the name of a resource. In JSON, it is a number, or a string with a number
// or a name.
type idOrName struct {
	id   int64
	name string
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *idOrName) UnmarshalJSON(raw []byte) error {
	*o = idOrName{}
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, &o.id); err == nil {
		return nil
	}
	if err := json.Unmarshal(raw, &o.name); err != nil {
		return err // an UnmarshalTypeError, to which the decoder adds the name of the field
	}
	if n, err := strconv.ParseInt(o.name, 10, 64); err == nil {
		*o = idOrName{id: n}
	}
	return nil
}

func (o idOrName) refersTo(id int64, name string) bool {
	return o.id != 0 && o.id == id || o.id == 0 && o.name != "" && o.name == name
}

func (o idOrName) String() string {
	if o.id != 0 {
		return strconv.FormatInt(o.id, 10)
	}
	return o.name
}
