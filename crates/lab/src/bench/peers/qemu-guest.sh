export PATH=/bin:/sbin PS1=
stty -echo
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
echo 0 >/proc/sys/kernel/printk
modprobe -a virtio_net dummy sch_ingress cls_matchall act_mirred pktgen
echo 1 2>/dev/null >/proc/sys/net/ipv6/conf/all/disable_ipv6; true
ip link add sink type dummy && ip link set sink up
redirect() { tc filter add dev $1 ingress prio $3 matchall action mirred egress redirect dev $2; }
attach() { ethtool -K $1 gro off && ip link set $1 promisc on up && tc qdisc add dev $1 clsact && redirect $1 $2 2; }
attach eth0 eth1 && attach eth1 eth0
pktgen() { echo "$2" >/proc/net/pktgen/$1; }
pktgen kpktgend_0 'add_device eth0' && pktgen kpktgend_0 'add_device eth1'
inject() { pktgen $1 "count $4" && pktgen $1 "pkt_size $3" && pktgen $1 "dst_mac $2"; }
drain() { redirect eth0 sink 1 && redirect eth1 sink 1; }
resume() { for port in eth0 eth1; do tc filter del dev $port ingress prio 1 2>/dev/null; done; true; }
value() { read -r n </sys/class/net/$1/statistics/$2_packets; echo "$1 $n"; }
count() { { read -r x; read -r x; read -r x x now x; } </proc/timer_list; echo "now $now"; value eth0 rx; value eth1 rx; value sink tx; }
features() { for port in eth0 eth1; do read -r bits </sys/class/net/$port/device/features; echo "features $bits"; done; }
