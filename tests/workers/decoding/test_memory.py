"""Memory in huge pages, and where there are none."""

import mmap

import pytest
import torch

from workers.decoding.memory import HUGE_PAGE, Arena, zeros

CPU = torch.device("cpu")


@pytest.mark.parametrize("numbers", [0, 5, HUGE_PAGE // 4 - 1, HUGE_PAGE // 4, HUGE_PAGE + 3])
def test_zeros_are_writable_zeros_of_their_shape(numbers: int) -> None:
    made = zeros((numbers, 3), torch.float32, CPU)
    assert made.shape == (numbers, 3)
    assert not made.any()
    assert (made.fill_(1) == 1).all()


def test_large_memory_begins_at_a_huge_page() -> None:
    assert zeros((HUGE_PAGE,), torch.float32, CPU).data_ptr() % HUGE_PAGE == 0


def test_a_system_without_huge_pages_gives_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", 12345)  # the kernel refuses what it does not know
    made = zeros((HUGE_PAGE,), torch.float32, CPU)
    assert made.shape == (HUGE_PAGE,)
    assert not made.any()


@pytest.mark.parametrize("numbers", [2**46, 2**61])
def test_too_much_is_refused_as_pytorch_refuses_it(numbers: int) -> None:
    with pytest.raises(RuntimeError, match=r"DefaultCPUAllocator|overflow"):
        zeros((numbers,), torch.float32, CPU)


def test_an_arena_places_copies_one_after_the_other_and_no_more_than_it_has() -> None:
    arena, first, second = Arena(10, torch.float32), torch.rand(2, 3), torch.rand(4)
    placed = [arena.place(first), arena.place(second)]
    assert torch.equal(placed[0], first)
    assert torch.equal(placed[1], second)
    assert placed[1].data_ptr() == placed[0].data_ptr() + 24
    with pytest.raises(RuntimeError):
        arena.place(torch.rand(1))
