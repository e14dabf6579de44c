// A vCenter on loopback that is simulated by govmomi: a cluster of hosts, and machines with the loads given.
package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// What there is: the description that orchestrators/vsphere/simulator/server.py writes.
type description struct {
	Hosts          []struct{ Cores, Mhz, Memory int }
	Machines       []struct{ Host, Cpu, Memory, CpuReservation, MemoryReservation int }
	Fails, Hangs   []string
	Delay          int
	User, Password string
}

// A machine whose moves fail, or begin and never end.
type machine struct {
	*simulator.VirtualMachine
	hangs bool
}

func (m *machine) RelocateVMTask(ctx *simulator.Context, _ *types.RelocateVM_Task) soap.HasFault {
	name := "relocateVm"
	if m.hangs {
		name = "hang" // TaskDelay lets it wait, and holds no lock meanwhile
	}
	task := simulator.CreateTask(m.VirtualMachine, name, func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		return nil, &types.InsufficientResourcesFault{}
	})
	task.Info.DescriptionId = "VirtualMachine.relocateVm"
	return &methods.RelocateVM_TaskBody{Res: &types.RelocateVM_TaskResponse{Returnval: task.Run(ctx)}}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to serve")
	flag.Parse()
	var wanted description
	if err := json.NewDecoder(os.Stdin).Decode(&wanted); err != nil {
		log.Fatal(err)
	}
	// A task that waits holds no lock, so that the inventory can be read meanwhile.
	simulator.TaskDelay.MethodDelay = map[string]int{"LockHandoff": 0, "RelocateVm": wanted.Delay, "Hang": 3600_000}
	model := simulator.VPX()
	model.Host, model.ClusterHost, model.Machine = 0, len(wanted.Hosts), len(wanted.Machines)
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	hosts := model.Map().All("HostSystem")
	for i, want := range wanted.Hosts {
		host := hosts[i].(*simulator.HostSystem)
		hardware := *host.Summary.Hardware
		hardware.NumCpuCores, hardware.CpuMhz = int16(want.Cores), int32(want.Mhz)
		hardware.MemorySize = int64(want.Memory) << 20
		host.Summary.Hardware = &hardware
		host.Name = fmt.Sprintf("esx%02d", i)
		host.Summary.Config.Name = host.Name
	}
	for i, entity := range model.Map().All("VirtualMachine") {
		vm, want := entity.(*simulator.VirtualMachine), wanted.Machines[i]
		at := hosts[want.Host].Reference()
		vm.Name = fmt.Sprintf("vm%04d", i)
		vm.Config.Name, vm.Summary.Config.Name = vm.Name, vm.Name
		vm.Runtime.Host, vm.Summary.Runtime.Host = &at, &at
		vm.Config.Hardware.MemoryMB = int32(want.Memory)
		vm.Summary.Config.MemorySizeMB = int32(want.Memory)
		vm.Config.CpuAllocation = &types.ResourceAllocationInfo{Reservation: types.NewInt64(int64(want.CpuReservation))}
		vm.Config.MemoryAllocation = &types.ResourceAllocationInfo{Reservation: types.NewInt64(int64(want.MemoryReservation))}
		vm.Summary.QuickStats.OverallCpuUsage = int32(want.Cpu)
		vm.Summary.QuickStats.OverallCpuDemand = int32(want.Cpu)
		vm.Summary.QuickStats.HostMemoryUsage = int32(want.Memory)
		if hangs := slices.Contains(wanted.Hangs, vm.Name); hangs || slices.Contains(wanted.Fails, vm.Name) {
			model.Map().Put(&machine{vm, hangs})
		}
	}
	model.Service.Listen = &url.URL{Host: *listen, User: url.UserPassword(wanted.User, wanted.Password)}
	model.Service.TLS = new(tls.Config)
	server := model.Service.NewServer()
	certificate, err := server.CertificateFile()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(server.URL.Host, certificate)
	select {}
}
