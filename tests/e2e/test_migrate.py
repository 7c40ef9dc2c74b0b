"""A real Linux guest moves between two daemons while it sends and receives: nothing is lost, and what fails changes nothing."""

import os
import unittest

from guest import skip_without_guests
from moving import ADDRESS, Command, Moves

RATE = 200
MOVES = 10


class MigrateBase(unittest.TestCase):
    """A guest of its own for each class."""

    limit_s = 600
    options = {}

    @classmethod
    def setUpClass(cls):
        skip_without_guests()
        if os.geteuid() != 0:
            raise unittest.SkipTest("namespaces need root")
        cls.moves = Moves(**cls.options)
        cls.addClassCleanup(cls.moves.close)
        cls.moves.start()

    def traffic(self):
        """Numbered datagrams both ways, from the guest to both hosts' namespaces and back, and a connection."""
        guest, peers = self.moves.guest, self.moves.peers
        receivers = [Command(guest, "receive", 7000 + n) for n in (0, 1)]
        receivers += [Command(peer.space, "receive", 7002) for peer in peers]
        senders = [Command(peer.space, "send", ADDRESS, 7000 + n, RATE) for n, peer in enumerate(peers)]
        senders += [Command(guest, "send", peer.v4, 7002, RATE) for peer in peers]
        listener = Command(peers[0].space, "listen", 7003)
        talker = Command(guest, "talk", peers[0].v4, 7003, 50)
        return receivers, senders, listener, talker

    def assert_nothing_lost(self, traffic):
        """Ends it all; every number has arrived, once and in order, and the connection lives."""
        receivers, senders, listener, talker = traffic
        sent = [sender.stop()["sent"] for sender in senders]
        answered = talker.stop()["answered"]
        self.assertEqual(listener.result()["answered"], answered)
        self.assertGreater(answered, 100)
        for count, receiver in zip(sent, receivers):
            said = receiver.stop()
            self.assertEqual((said["lost"], said["twice"], said["late"]), (0, 0, 0), (count, said))
            self.assertEqual(said["received"], count, said)
            print(f"     {said['received']} arrived of {count}, longest gap {said['gap_ms']} ms")


class Ten(MigrateBase):
    """Back and forth."""

    def test_ten_times_back_and_forth(self):
        traffic = self.traffic()
        for number in range(MOVES):
            report = self.moves.move()
            self.assertEqual(report["outcome"], "moved")
            here = self.moves.adapter(self.moves.at)
            self.assertEqual((here["path"], here["connected"], here["reason"]), ("vf", True, "Supported"))
            self.assertIsNone(self.moves.adapter(1 - self.moves.at))
            print(
                f"     {number}: total {report['total_ms']} ms, downtime {report['downtime_ms']} ms, "
                f"switch {report['switch_ms']} ms, carried {report['carried']}, lost {report['lost']}"
            )
            self.assertEqual(report["lost"], 0)
        self.assert_nothing_lost(traffic)


if __name__ == "__main__":
    unittest.main()
