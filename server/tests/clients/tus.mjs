// Uploads a file through tus-js-client, broken off in the middle and taken up again by a second client, and prints what happened,
// as JSON.
//
// Read from standard input, so that packages are found from the working directory. The only argument is a JSON object: `url` (an
// upload link), `file`, `size`, `chunk` and `interrupt` (a number of bytes).
import { createReadStream } from 'node:fs';
import { Upload } from 'tus-js-client';

const job = JSON.parse(process.argv.at(-1));
const common = {
  uploadSize: job.size,
  chunkSize: job.chunk,
  metadata: { filename: 'file.bin', filetype: 'application/octet-stream' },
  retryDelays: [50, 100, 200, 400, 800, 1600, 3200],
  storeFingerprintForResuming: false,
};

// Leaves in the middle of a piece.
const where = await new Promise((resolve, reject) => {
  const upload = new Upload(createReadStream(job.file), {
    ...common,
    endpoint: job.url,
    onProgress: async (sent) => {
      if (sent >= job.interrupt) {
        await upload.abort();
        resolve(upload.url);
      }
    },
    onError: reject,
    onSuccess: () => reject(new Error('it was to be interrupted')),
  });
  upload.start();
});

// Knows nothing but where the upload is.
const asked = [];
await new Promise((resolve, reject) => {
  const upload = new Upload(createReadStream(job.file), {
    ...common,
    uploadUrl: where,
    onAfterResponse: (request, response) => {
      const offset = response.getHeader('Upload-Offset');
      asked.push([request.getMethod(), response.getStatus(), offset ? Number(offset) : null]);
    },
    onError: reject,
    onSuccess: resolve,
  });
  upload.start();
});
console.log(JSON.stringify({ where, asked }));
