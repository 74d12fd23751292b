"""What a client of either build does: writes and commits shuffles, or reads them back. Uses only what both builds have.

python job.py write ENDPOINTS APP NUMBER     (MAP partitions under NUMBER, REDUCE partitions under NUMBER + 1)
python job.py read ENDPOINTS APP NUMBER…     exits 1 if a record is missing, there twice, or not as it was written
"""

import sys

from holdfast.client import Session

MAPS, PARTITIONS, RECORDS = 3, 4, 50


def payload(number: int, map_id: int, record: int) -> bytes:
    """What the record of a shuffle says, some of it long."""
    return f"{number} {map_id} {record} ".encode() * (1 + record % 7 * 400)


def expected(number: int, partition: int) -> list[bytes]:
    """Every record of a partition, sorted."""
    return sorted(payload(number, m, r) for m in range(MAPS) for r in range(RECORDS) if r % PARTITIONS == partition)


def write(session: Session, number: int) -> None:
    """One shuffle of each kind."""
    pairs = [(r % PARTITIONS, r) for r in range(RECORDS)]
    shuffle = session.register_map_shuffle(PARTITIONS, maps=MAPS, shuffle_id=number)
    statuses = []
    for m in range(MAPS):
        with shuffle.writer(m, number * 100 + m) as writer:
            statuses.append(writer.close([(p, payload(number, m, r)) for p, r in sorted(pairs)]))
    shuffle.commit(statuses)
    pushed = session.register_reduce_shuffle(PARTITIONS, maps=MAPS, shuffle_id=number + 1)
    pushes = []
    for m in range(MAPS):
        with pushed.writer(m, number * 100 + 50 + m) as push:
            for p, r in pairs:
                push.write(p, payload(number + 1, m, r))
            pushes.append(push.close())
    pushed.commit(pushes)


def read(session: Session, number: int) -> None:
    """Both shuffles, every partition, exactly."""
    for shuffle, which in (
        (session.open_shuffle(number), number),
        (session.open_reduce_shuffle(number + 1), number + 1),
    ):
        for partition in range(PARTITIONS):
            found = sorted(bytes(record.payload) for record in shuffle.reader([partition]))
            assert found == expected(which, partition), f"shuffle {which} partition {partition}: {len(found)} records"


def main(what: str, endpoints: str, app: str, *numbers: str) -> None:
    """Attach to the application and do it."""
    with Session(endpoints, app=app, attach=True) as session:
        for number in map(int, numbers):
            (write if what == "write" else read)(session, number)


if __name__ == "__main__":
    main(*sys.argv[1:])
