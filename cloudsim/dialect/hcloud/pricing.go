package hcloud

import (
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

var zeroPrice = amount{Net: "0.0000000000", Gross: "0.0000000000"}

// pricesIn returns the prices of a type in the locations of the given zones. Some clients,
// such as the cluster autoscaler, use a server type in a location only if the server type
// has a price for this location.
func pricesIn(zones []cloudsim.Zone) []price {
	out := make([]price, 0, len(zones))
	for _, z := range zones {
		out = append(out, price{Location: z.Name, PriceHourly: zeroPrice, PriceMonthly: zeroPrice, PricePerTBTraffic: zeroPrice})
	}
	return out
}

func getPricing(r *dialect.Request) (int, any, error) {
	servers, err := serverTypes(r)
	if err != nil {
		return 0, nil, err
	}
	loadBalancers, err := pricedLoadBalancerTypes(r)
	if err != nil {
		return 0, nil, err
	}
	p := pricing{Currency: "EUR", VATRate: "0.000000", FloatingIPs: []struct{}{}, PrimaryIPs: []struct{}{}, ServerTypes: []typePrices{}, LoadBalancerTypes: []typePrices{}}
	p.Image.PricePerGBMonth, p.Volume.PricePerGBMonth = zeroPrice, zeroPrice
	p.FloatingIP.PriceMonthly, p.Traffic.PricePerTB = zeroPrice, zeroPrice
	p.ServerBackup.Percentage = "0.0000000000"
	for _, t := range servers {
		p.ServerTypes = append(p.ServerTypes, typePrices{t.ID, t.Name, t.Prices})
	}
	for _, t := range loadBalancers {
		p.LoadBalancerTypes = append(p.LoadBalancerTypes, typePrices{t.ID, t.Name, t.Prices})
	}
	return http.StatusOK, map[string]any{"pricing": p}, nil
}
