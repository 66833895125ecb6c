package main

import "github.com/cloudsim-dev/allinone/cmd/allinone/internal/labcli"

// labCommands contains the constructors of the lab's commands, in the order of the help.
var labCommands = []constructor{
	{groupLab, labcli.NewUpCommand},
	{groupLab, labcli.NewStatusCommand},
	{groupLab, labcli.NewEnterCommand},
	{groupLab, labcli.NewImagesCommand},
	{groupLab, labcli.NewDownCommand},
	{groupLab, labcli.NewResetCommand},
	{groupLab, labcli.NewDoctorCommand},
	{groupLab, labcli.NewLabCommand},
	{groupLab, labcli.NewComposeCommand},
}
