/* swap_avx2.c: byte order with AVX2. Nothing of it runs where the processor has none (swap.c asks).
 */
#include "internal.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>

/* From this size on the destination goes past the caches: it is larger than they are worth. */
enum { LARGE = 1 << 20, STEP = 4 * sizeof(__m256i) };

__attribute__((target("avx2"))) static __m256i reversal(uint32_t unit) {
    uint8_t from[sizeof(__m256i)];
    for (uint32_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)((i % 16) ^ (unit - 1)); /* the shuffle counts within 16 bytes */
    return _mm256_loadu_si256((const __m256i *)from);
}

__attribute__((target("avx2"))) size_t
weig_swap_avx2(uint8_t *to, const uint8_t *from, size_t size, uint32_t unit) {
    const __m256i order = reversal(unit);
    const bool stream = size >= LARGE;
    size_t done = 0;
    for (; size - done >= STEP; done += STEP) {
        for (unsigned i = 0; i < STEP; i += sizeof(__m256i)) {
            const __m256i bytes = _mm256_loadu_si256((const __m256i *)(from + done + i));
            const __m256i swapped = _mm256_shuffle_epi8(bytes, order);
            if (stream)
                _mm256_stream_si256((__m256i *)(to + done + i), swapped);
            else
                _mm256_store_si256((__m256i *)(to + done + i), swapped);
        }
    }
    _mm_sfence();
    return done;
}
#endif
