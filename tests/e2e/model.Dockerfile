# A model as an OCI image: nothing but its files. Only the end-to-end tests use it.
FROM scratch
COPY . /model/
