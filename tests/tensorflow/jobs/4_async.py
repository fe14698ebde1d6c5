"""With cuda_malloc_async each tensor is an allocation of the driver's pool, of exactly its size."""
# needs: TF_GPU_ALLOCATOR=cuda_malloc_async
# from: 2.19 older ones use a new block in a stream that is not ordered after its allocation, which CUDA leaves undefined
import memory
import tensorflow as tf

memory.gpus()
with tf.device("/GPU:0"):
    tf.ones((16,)) + 1.0
    before, taken = memory.calls("cuMemAllocFromPoolAsync"), memory.physical()
    kept = [tf.ones((1 << 20,)) + 1.0 for _ in range(8)]
    # An allocation for the ones and one for each sum, and no pool of TensorFlow's own behind them.
    if memory.ALONE:
        assert memory.calls("cuMemAllocFromPoolAsync") - before >= 8
    assert 32 * memory.MiB <= memory.physical() - taken <= 80 * memory.MiB, memory.physical() - taken
    assert memory.physical() < 1 << 30, memory.physical()
